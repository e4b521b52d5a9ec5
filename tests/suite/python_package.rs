//! The tests of the Python package (`tests/python`), so that `cargo test` runs them too.
//!
//! They need `python3` and pytest. Where pytest is missing, pip installs it into Cargo's directory for temporary files;
//! where that fails (no Python, no network), a line says that they were skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
#[ignore = "slow: .ci/release runs it"]
fn the_tests_of_the_python_package_pass() {
    let Some(python) = python_with_pytest() else {
        eprintln!("python3 with pytest is missing: the tests of the Python package were skipped");
        return;
    };
    let output = Command::new(python)
        .args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("OOMSCOPE_PROGRAM", env!("CARGO_BIN_EXE_oomscope"))
        .output()
        .unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{out}{err}");
}

/// `python3` if it has pytest, else a virtual environment that does.
fn python_with_pytest() -> Option<PathBuf> {
    let system = PathBuf::from("python3");
    if succeeds(&system, &["-m", "pytest", "--version"]) {
        return Some(system);
    }
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pytest");
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let is_ready = || succeeds(&python, &["-m", "pytest", "--version"]);
    let install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "pytest"];
    (is_ready()
        || succeeds(&system, &["-m", "venv", environment.to_str()?]) && succeeds(&python, &install) && is_ready())
    .then_some(python)
}

fn succeeds(program: &Path, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}
