//! CPython, where it is installed.
#![allow(clippy::print_stderr, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn has_python() -> bool {
    let has = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 8))"])
        .status()
        .is_ok_and(|status| status.success());
    if !has {
        eprintln!("python3 (3.8 or later) is missing: the comparison with CPython was skipped");
    }
    has
}

/// Runs `script` in `directory`, with the fixtures' directory as its argument.
pub fn python(script: &str, directory: &Path) -> String {
    let output = Command::new("python3")
        .args(["-B", "-c", script])
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures"))
        .current_dir(directory)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
