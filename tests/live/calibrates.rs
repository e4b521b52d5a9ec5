//! `oomscope live --calibrate`, and what `oomscope whatif --cost` makes of its file.

use serde_json::Value;
use tempfile::TempDir;

use crate::driver::{MIB, assert_nothing_left, live, small_program};
use crate::program::{refusal, result_of, text};

const SLOW: [(&str, &str); 4] =
    [("STUB_MALLOC_US", "1500"), ("STUB_FREE_US", "700"), ("STUB_MAP_US", "400"), ("STUB_UNMAP_US", "300")];

/// The file that calibration against a slow driver of `total` MiB writes.
fn calibrated(directory: &TempDir, total: &str) -> String {
    let file = text(&directory.path().join("gpu.json"));
    let (ran, ledger) = live(&["--calibrate", &file], &[&SLOW[..], &[("STUB_TOTAL_MIB", total)]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("device calls on Stub GPU 0"), "{}", ran.out);
    assert_nothing_left(&ledger);
    assert!(ledger["peak"] <= (total.parse::<u64>().unwrap() - 512) * MIB / 2);
    file
}

#[test]
fn every_call_is_measured_by_size() {
    let directory = TempDir::new().unwrap();
    let file = calibrated(&directory, "1024");
    let costs: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(costs["schema"], "oomscope/cost/1");
    assert_eq!(crate::schema::faults(&costs), [""; 0]);
    assert_eq!(costs["gpu"], "Stub GPU 0");
    for (call, least_ns) in [("malloc", 1_500_000), ("free", 700_000), ("map", 400_000), ("unmap", 300_000)] {
        let measured = costs["calls"][call].as_array().unwrap();
        let sizes: Vec<u64> = measured.iter().map(|c| c["bytes"].as_u64().unwrap() / MIB).collect();
        // Half of what is within reach: 256 MiB.
        assert_eq!(sizes, [2, 20, 60, 200], "{call}");
        for cost in measured {
            // The stub takes as long for each granule of a range.
            let bytes = cost["bytes"].as_u64().unwrap();
            let granules = if least_ns < 500_000 { bytes.div_ceil(20 * MIB) } else { 1 };
            let median = cost["median_ns"].as_u64().unwrap();
            assert!(median >= least_ns * granules, "{call}: {cost}");
            assert_eq!(cost["samples"], 21);
        }
    }
}

/// Costs that lie on one line, so that those of every size can be told by hand.
#[test]
fn a_setting_costs_what_its_calls_cost() {
    let directory = TempDir::new().unwrap();
    let file = text(&directory.path().join("gpu.json"));
    // 1 us for each MiB, plus 100 us; a release takes a tenth.
    let costs = |scale: u64| {
        let of = |mib: u64| serde_json::json!({"bytes": mib * MIB, "median_ns": (mib + 100) * scale, "samples": 1});
        [of(2), of(20), of(200)]
    };
    let written = serde_json::json!({
        "schema": "oomscope/cost/1", "gpu": "made by hand", "cuda_version": "12.8",
        "calls": {"malloc": costs(1000), "free": costs(100), "map": costs(1000), "unmap": costs(100)},
    });
    std::fs::write(&file, written.to_string()).unwrap();
    let program = small_program(&directory);
    let times = |capacity: &str| -> Vec<u64> {
        let args = [
            "whatif",
            "--format",
            "json",
            "--cost",
            &file,
            "--capacity",
            capacity,
            "--set",
            "expandable_segments:True",
            &program,
        ];
        let report: Value = serde_json::from_str(&result_of(&args)).unwrap();
        let rows = report["rows"].as_array().unwrap();
        rows.iter().map(|row| row["device_time_us"].as_u64().unwrap()).collect()
    };
    let roomy = times("8GiB");
    assert_eq!(roomy[0], by_hand(&program, "8GiB", "expandable_segments:False"));
    assert_eq!(roomy[1], by_hand(&program, "8GiB", "expandable_segments:True"));
    assert_ne!(roomy[0], roomy[1]);
    // On a small device memory is given back on the way, which takes time too.
    let tight = times("300MiB");
    assert_eq!(tight[0], by_hand(&program, "300MiB", "expandable_segments:False"));
    assert!(tight[0] > roomy[0]);
    let page = result_of(&["whatif", "--full", "--cost", &file, &program]);
    assert!(page.contains("calls take"), "{page}");
    assert!(page.contains("measured on made by hand, driver for CUDA 12.8"), "{page}");
    let without = result_of(&["whatif", "--format", "json", &program]);
    assert!(!without.contains("device_time_us"), "{without}");
}

/// The same from the trace of the model itself, as `replay --emit-snapshot` writes it.
fn by_hand(program: &str, capacity: &str, settings: &str) -> u64 {
    let directory = TempDir::new().unwrap();
    let emitted = text(&directory.path().join("model.pickle"));
    let args = ["replay", "--capacity", capacity, "--set", settings, "--emit-snapshot", &emitted, program];
    result_of(&args);
    let bytes = std::fs::read(&emitted).unwrap();
    let snapshot = oomscope::snapshot::Snapshot::read(&bytes, &|_| ()).unwrap();
    let mut ns = 0;
    for event in snapshot.device(0).entries() {
        let cost = event.size / MIB + 100;
        match event.action.name() {
            "segment_alloc" | "segment_map" => ns += cost * 1000,
            "segment_free" | "segment_unmap" => ns += cost * 100,
            _ => {}
        }
    }
    ns / 1000
}

#[test]
fn what_a_calibration_writes_can_be_used() {
    let directory = TempDir::new().unwrap();
    let file = calibrated(&directory, "1024");
    let program = small_program(&directory);
    let args = ["whatif", "--format", "json", "--cost", &file, &program];
    let report: Value = serde_json::from_str(&result_of(&args)).unwrap();
    for row in report["rows"].as_array().unwrap() {
        let calls = row["device_allocs"].as_u64().unwrap();
        assert!(row["device_time_us"].as_u64().unwrap() >= calls * 400, "{row}");
    }
}

#[test]
fn wrong_usage_is_refused() {
    let directory = TempDir::new().unwrap();
    let program = small_program(&directory);
    let said = refusal(&["whatif", "--cost", &program, &program]);
    assert!(said.contains("is not a cost file of 'oomscope live --calibrate'"), "{said}");
    let said = refusal(&["whatif", "--cost", "nowhere.json", &program]);
    assert!(said.contains("nowhere.json cannot be read"), "{said}");
    let file = text(&directory.path().join("gpu.json"));
    let (ran, _) = live(&["--calibrate", &file], &[("STUB_TOTAL_MIB", "513")]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("only 1 MiB is available on GPU 0"), "{}", ran.err);
    let said = refusal(&["live", "--calibrate", &file, "-o", &file]);
    assert!(said.contains("name two files"), "{said}");
    let (ran, ledger) = live(&["--calibrate", &file], &[("STUB_FAIL_AT", "20")]);
    assert!(ran.code == 2 && ran.err.contains(" failed: CUDA_ERROR_UNKNOWN"), "{}", ran.err);
    assert_nothing_left(&ledger);
}
