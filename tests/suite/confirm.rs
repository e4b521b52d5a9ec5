//! An independent Python program comes to the same figures, on every fixture. Without `python3` this test passes.
//! Slow: Python reads every recording.

use std::process::Command;

use crate::support::fixtures;

#[test]
fn python_computes_the_same_figures_on_every_fixture() {
    let names = fixtures::names();
    let paths = names.iter().map(|name| format!("fixtures/{name}.pickle.gz"));
    let mut confirm = Command::new("python3");
    confirm.args(["tests/confirm/confirm.py", env!("CARGO_BIN_EXE_oomscope")]).args(paths);
    let Ok(output) = confirm.current_dir(env!("CARGO_MANIFEST_DIR")).output() else { return };
    let expected = format!("{} files confirmed, 0 mismatches\n", names.len());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
}
