//! The advice on a job in which no request failed: what is notable for its memory and its device, and nothing else.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{analyze, file};

const MIB: u64 = 1 << 20;

fn entry(action: &str, address: u64, bytes: u64, time: u64) -> Value {
    let frames = json!([{ "filename": "/app/train.py", "line": 12, "name": "step" }]);
    json!({ "action": action, "addr": address, "size": bytes, "stream": 0, "time_us": time, "frames": frames })
}

/// The first device of a recording with these `entries` and final `segments`, and the action on it.
fn analyzed(entries: Vec<Value>, segments: Vec<Value>, options: &[&str]) -> (Value, String) {
    let directory = TempDir::new().unwrap();
    let snapshot = json!({ "segments": segments, "device_traces": [entries] });
    let path = file(&directory, "job.json", snapshot.to_string().as_bytes());
    let report = analyze(&[options, &[&path]].concat());
    let action = report["summary"]["action"].as_str().unwrap_or_default().to_owned();
    (report["snapshots"][0]["devices"][0].clone(), action)
}

/// A segment with one live block that the trace does not have.
fn from_before(bytes: u64) -> Value {
    let block = json!({ "size": bytes, "requested_size": bytes, "state": "active_allocated", "frames": [] });
    json!({ "device": 0, "address": 1_u64 << 40, "total_size": bytes, "stream": 0, "segment_type": "large", "blocks": [block] })
}

/// 200 MiB that are allocated and kept.
fn work() -> Vec<Value> {
    vec![entry("segment_alloc", 1 << 41, 200 * MIB, 1), entry("alloc", 1 << 41, 200 * MIB, 2)]
}

fn kept() -> Value {
    let block = json!({ "size": 200 * MIB, "requested_size": 200 * MIB, "state": "active_allocated", "frames": [] });
    json!({ "device": 0, "address": 1_u64 << 41, "total_size": 200 * MIB, "stream": 0, "segment_type": "large", "blocks": [block] })
}

#[test]
fn memory_from_before_the_recording_is_a_word_only_if_it_is_notable() {
    for (before, options, is_said) in [
        (2 * MIB, &[][..], false),
        (100 * MIB, &[][..], true),
        // A third of the job's memory, and a thousandth of the device.
        (100 * MIB, &["--capacity", "80GiB"][..], false),
        (100 * MIB, &["--capacity", "2GiB"][..], true),
    ] {
        let (device, action) = analyzed(work(), vec![from_before(before), kept()], options);
        assert_eq!(device["peak"]["allocated_bytes"], before + 200 * MIB);
        assert_eq!(action.contains("start the recording before"), is_said, "{before} {options:?}: {action}");
    }
}

#[test]
fn requests_that_flush_the_cache_are_counted_and_named() {
    for (flushes, is_said) in [(0, false), (3, false), (39, true)] {
        let mut entries = work();
        let mut time = 3;
        let mut add = |action: &str, address: u64, bytes: u64| {
            entries.push(entry(action, address, bytes, time));
            time += 1;
        };
        let address = |cycle: u64| (1 << 42) + cycle * (1 << 32);
        let bytes = |cycle: u64| (64 + 2 * cycle) * MIB;
        add("segment_alloc", address(0), bytes(0));
        add("alloc", address(0), bytes(0));
        for cycle in 1..=flushes {
            add("free_requested", address(cycle - 1), bytes(cycle - 1));
            add("free_completed", address(cycle - 1), bytes(cycle - 1));
            add("segment_free", address(cycle - 1), bytes(cycle - 1));
            add("segment_alloc", address(cycle), bytes(cycle));
            add("alloc", address(cycle), bytes(cycle));
        }
        let last = json!({ "size": bytes(flushes), "requested_size": bytes(flushes), "state": "active_allocated", "frames": [] });
        let segment = json!({ "device": 0, "address": address(flushes), "total_size": bytes(flushes), "stream": 0,
            "segment_type": "large", "blocks": [last] });
        let (device, action) = analyzed(entries, vec![kept(), segment], &[]);
        let released: u64 = (0..flushes).map(bytes).sum();
        let wanted = json!({ "requests": flushes, "released_bytes": released });
        assert_eq!(device.get("cache_flushes"), (flushes > 0).then_some(&wanted));
        assert_eq!(action.contains("39 requests waited"), is_said, "{action}");
    }
}

/// A program on the real allocator, whose memory peaks in a step of AdamW with `foreach`.
#[test]
fn an_optimizer_whose_temporaries_make_the_peak_is_named() {
    let report = analyze(&["fixtures/advised/adamw_at_peak.pickle.gz"]);
    let action = report["summary"]["action"].as_str().unwrap();
    assert!(action.starts_with("fuse the optimizer (fused=True) (adamw.py:"), "{action}");
    let device = &report["snapshots"][0]["devices"][0];
    let peak = device["peak"]["reserved_bytes"].as_u64().unwrap();
    assert!(peak > 400 * MIB, "{peak}");
}
