//! The analyzer for browsers: `.ci/release` builds and tries it, where Rust's target for WebAssembly is installed.
#![allow(clippy::print_stderr, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// `.ci/viewer` exits with it if the target cannot be installed.
const NO_TARGET: i32 = 3;

/// The module, compressed by gzip; `None` with a sentence where it cannot be built.
pub fn module() -> Option<&'static Path> {
    static MODULE: LazyLock<Option<PathBuf>> = LazyLock::new(build);
    MODULE.as_deref()
}

fn build() -> Option<PathBuf> {
    if std::env::var_os("OOMSCOPE_TEST_VIEWER").is_none() {
        eprintln!("the viewer was not tried: OOMSCOPE_TEST_VIEWER=1 builds it, as .ci/release does");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join(".ci/viewer")).arg("dev").current_dir(root).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NO_TARGET) {
        eprintln!("{out}: the viewer was not tried");
        return None;
    }
    assert!(output.status.success(), "{out}{err}");
    Some(root.join("target/viewer/dev.wasm.gz"))
}

/// The results for `files` in node, in `directory`: `N.html`, or `N.txt` with a sentence. False without node.
pub fn run_in_node(module: &Path, files: &[&str], directory: &Path) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/viewer.mjs");
    let mut command = Command::new("node");
    command.arg(script).args([module, directory]).args(files).current_dir(env!("CARGO_MANIFEST_DIR"));
    let Ok(output) = command.output() else {
        eprintln!("node is not installed: the viewer was not tried in it");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}
