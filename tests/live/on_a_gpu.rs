//! On a real GPU, where there is one.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::driver::fixture;
use crate::program::run;

/// One test at a time: what another takes of the GPU, or gives back, would be counted here.
static GPU: Mutex<()> = Mutex::new(());

/// Whether this machine shows a GPU of NVIDIA's.
pub(crate) fn has_gpu() -> bool {
    (0..64).any(|number| Path::new(&format!("/dev/nvidia{number}")).exists())
}

#[test]
fn the_corpus_is_decided_as_predicted() {
    if !has_gpu() {
        eprintln!("skipped: no GPU here");
        return;
    }
    let _alone = GPU.lock().unwrap_or_else(PoisonError::into_inner);
    for name in crate::fixtures::names() {
        if name.ends_with("no-history") {
            continue;
        }
        let ran = run(&["live", "--format", "json", &fixture(&name)]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        for device in report["devices"].as_array().unwrap() {
            assert_eq!(device["as_predicted"], true, "{name}");
            let [reserved, driver] =
                ["peak_reserved_bytes", "driver_peak_bytes"].map(|key| device[key].as_u64().unwrap());
            assert!(driver >= reserved, "{name}: the driver counts {driver}, not {reserved}");
        }
    }
}

/// PyTorch runs a program and records it; the replay of the recording reserves as much as PyTorch did.
#[test]
fn pytorch_beside_it_reserves_as_much() {
    let _alone = GPU.lock().unwrap_or_else(PoisonError::into_inner);
    let python = std::env::var("OOMSCOPE_TORCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/beside_pytorch.py");
    let ran = Command::new(&python).arg(script).arg(env!("CARGO_BIN_EXE_oomscope")).output();
    let Ok(output) = ran else {
        eprintln!("skipped: no {python}");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
