//! `tests/gpu/run.py`, which measures on a GPU, over the stub driver as far as it goes.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::driver::built;
use crate::on_a_gpu::has_gpu;

#[test]
fn the_gpu_script_replays_and_lists_the_skipped() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/run.py");
    let out = TempDir::new().unwrap();
    let mut command = Command::new("python3");
    command.arg(script).args(["--oomscope", env!("CARGO_BIN_EXE_oomscope"), "--only", "2.15.0-fuzz-"]);
    command.arg("--out").arg(out.path()).env("LD_LIBRARY_PATH", built(false)).env("PYTHONDONTWRITEBYTECODE", "1");
    if has_gpu() {
        eprintln!("skipped: the script runs on the GPU here, not on the stub");
        return;
    }
    let Ok(ran) = command.output() else {
        eprintln!("skipped: no python3");
        return;
    };
    let results = std::fs::read_to_string(out.path().join("results.md")).unwrap();
    assert!(ran.status.success(), "{results}{}", String::from_utf8_lossy(&ran.stderr));
    // recordings, devices, other decisions, not replayed; the driver's count less reserved memory
    for row in [
        "| as recorded | 7 | 7 | 0 | 0 | 0 to 0 |",
        "| expandable_segments:True | 7 | 7 | 0 | 0 | - |",
        "| --touch | 7 | 7 | 0 | 0 | - |",
    ] {
        assert!(results.contains(row), "{row}: {results}");
    }
    assert_eq!(results.matches("Skipped: no GPU").count(), 4, "{results}");
}
