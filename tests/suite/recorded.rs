//! What the recorder knew is used: release, capacity, memory outside, rank, the call of a backward pass, the ring.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{analyze, file, run};

const OUTSIDE: &str = "fixtures/recorded/2.15.0-outside.pickle.gz";
const BACKWARD: &str = "fixtures/recorded/2.15.0-backward.pickle.gz";
const RANKS: &str = "fixtures/recorded/ranks";

/// A snapshot as JSON, of one block of 1 GiB that was there before the first of `entries` entries.
fn snapshot(entries: usize, recorded: Value) -> Value {
    let frames = json!([{ "filename": "/app/train.py", "line": 7, "name": "main" }]);
    let at = |address: u64, state: &str| {
        let block = json!({ "address": address, "size": 1u64 << 30, "requested_size": 1u64 << 30,
                            "state": state, "frames": [] });
        json!({ "device": 0, "address": address, "total_size": 1u64 << 30, "allocated_size": 1u64 << 30,
                "active_size": 1u64 << 30, "requested_size": 1u64 << 30, "stream": 0, "segment_type": "large",
                "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": [block] })
    };
    let entry = |index: usize| {
        let (action, size) = (["alloc", "free_requested", "free_completed"][index % 3], 512);
        json!({ "action": action, "addr": 0x6000_0000_0000u64, "size": size, "stream": 0, "frames": frames })
    };
    let trace: Vec<Value> = (0..entries).map(entry).collect();
    json!({ "segments": [at(0x7000_0000_0000, "active_allocated")], "device_traces": [trace], "oomscope": recorded })
}

fn only(result: &Value) -> &Value {
    &result["snapshots"][0]
}

#[test]
fn the_release_is_exact_and_the_verdict_needs_no_capacity() {
    let result = analyze(&[OUTSIDE]);
    let one = only(&result);
    assert_eq!(one["torch_version"], "2.15.0");
    assert_eq!(one["recorder"]["reason"], "oom");
    assert_eq!(one["recorder"]["devices"][0]["total_bytes"], 8u64 << 30);
    let oom = &one["devices"][0]["ooms"][0];
    assert_eq!(oom["verdict"], "non-pytorch", "{oom}");
    assert_eq!(oom["confidence"], "certain");
    // 6000 MiB were held by another process.
    let outside = oom["causes"].as_array().unwrap().iter().find(|cause| cause["kind"] == "non-pytorch");
    assert_eq!(outside.map(|cause| &cause["bytes"]), Some(&json!(6000u64 << 20)), "{oom}");
}

#[test]
fn a_capacity_that_is_given_outranks_the_recorded_one() {
    let result = analyze(&["--capacity", "2200MiB", OUTSIDE]);
    assert_eq!(only(&result)["devices"][0]["ooms"][0]["verdict"], "capacity");
    let result = analyze(&["--torch-version", "2.14", OUTSIDE]);
    assert_eq!(only(&result)["torch_version"], "2.14");
}

#[test]
fn without_what_was_recorded_the_same_is_not_known() {
    let directory = TempDir::new().unwrap();
    let mut bare = fs::read(OUTSIDE)
        .map(|bytes| {
            let mut inflated = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut inflated).unwrap();
            inflated
        })
        .unwrap();
    let at = bare.windows(8).position(|word| word == b"oomscope").unwrap();
    bare[at..at + 8].copy_from_slice(b"oomscopf");
    let result = analyze(&[&file(&directory, "bare.pickle", &bare)]);
    let one = only(&result);
    assert!(one.get("recorder").is_none());
    assert_ne!(one["torch_version"], "2.15.0");
    assert_eq!(one["devices"][0]["ooms"][0]["verdict"], "capacity");
}

#[test]
fn the_line_that_called_backward_is_known_from_the_other_thread() {
    let result = analyze(&[BACKWARD]);
    let oom = &only(&result)["devices"][0]["ooms"][0];
    assert_eq!(oom["frames"], json!([]), "no stack was recorded with the entry itself");
    assert_eq!(oom["culprit"]["file"], "/app/jobs/backward.py");
    assert_eq!(oom["culprit"]["line"], 9);
}

#[test]
fn ranks_are_called_by_their_numbers() {
    let result = analyze(&[RANKS]);
    let summary = result["ranks"]["summary"].as_str().unwrap();
    assert!(summary.starts_with("1 of 2 ran out of memory: rank 1 (device 1) at jobs/ranks.py:16"), "{summary}");
    assert_eq!(result["ranks"]["rows"][1]["rank"], "0");
    let result = analyze(&[RANKS, RANKS]);
    let summary = result["ranks"]["summary"].as_str().unwrap();
    assert!(!summary.contains("rank 1 ("), "two jobs have each rank twice: {summary}");
}

#[test]
fn the_ring_is_as_large_as_recorded() {
    let directory = TempDir::new().unwrap();
    let lost = |entries: usize, recorded: Value| {
        let text = snapshot(entries, recorded).to_string();
        let result = analyze(&[&file(&directory, "ring.json", text.as_bytes())]);
        result.to_string().contains("history-lost")
    };
    assert!(lost(3000, json!(null)), "a round number looks like a full ring");
    assert!(!lost(3000, json!({ "max_entries": 1_000_000 })));
    assert!(lost(3003, json!({ "max_entries": 3003 })));
    assert!(!lost(3003, json!(null)));
}

#[test]
fn settings_of_an_old_release_are_those_of_the_environment() {
    let directory = TempDir::new().unwrap();
    let recorded = json!({ "torch": "2.1.2+cu121", "alloc_conf": "max_split_size_mb:64", "host": "node1" });
    let text = snapshot(3, recorded).to_string();
    let result = analyze(&[&file(&directory, "old.json", text.as_bytes())]);
    let one = only(&result);
    assert_eq!(one["torch_version"], "2.1.2");
    assert_eq!(one["settings_string"], "max_split_size_mb:64");
    assert_eq!(one["recorder"]["host"], "node1");
}

#[test]
fn nonsense_under_the_key_is_passed_over() {
    let directory = TempDir::new().unwrap();
    for nonsense in [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!([1, 2]),
        json!({}),
        json!({ "torch": 2, "devices": 3, "threads": "x", "oom": [], "rank": {}, "max_entries": "many", "pid": -1 }),
        json!({ "torch": "2.999.0", "devices": [{}, 1, null, { "total_bytes": -5 }], "oom": { "device": 1u64 << 40 } }),
        json!({ "torch": "x".repeat(5000), "threads": [{ "frames": [{ "line": 1 }] }, { "frames": 7 }] }),
    ] {
        let text = snapshot(3, nonsense.clone()).to_string();
        let ran = run(&[&file(&directory, "odd.json", text.as_bytes())]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
}
