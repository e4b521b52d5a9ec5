//! The advice on a job in which no request failed: what is notable for its memory and its device, and nothing else.

use serde_json::{Value, json};

use crate::support::made;
use crate::support::program::analyze;

const MIB: u64 = 1 << 20;

fn entry(action: &str, address: u64, bytes: u64, time: u64) -> Value {
    made::entry(action, address, bytes, time, &made::frames(&[("/app/train.py", 12, "step")]))
}

/// The first device of a recording with these `entries` and final `segments`, and the action on it.
fn analyzed(entries: Vec<Value>, segments: Vec<Value>, options: &[&str]) -> (Value, String) {
    let report = made::analyzed(&made::snapshot(&segments, &[entries]), options);
    let action = report["summary"]["action"].as_str().unwrap_or_default().to_owned();
    (report["snapshots"][0]["devices"][0].clone(), action)
}

/// A segment with one live block.
fn held(address: u64, bytes: u64) -> Value {
    made::segment(0, &[made::live(address, bytes, &json!([]))])
}

/// 200 MiB that are allocated and kept.
fn work() -> Vec<Value> {
    vec![entry("segment_alloc", 1 << 41, 200 * MIB, 1), entry("alloc", 1 << 41, 200 * MIB, 2)]
}

fn kept() -> Value {
    held(1 << 41, 200 * MIB)
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
        let (device, action) = analyzed(work(), vec![held(1 << 40, before), kept()], options);
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
        let (device, action) = analyzed(entries, vec![kept(), held(address(flushes), bytes(flushes))], &[]);
        let released: u64 = (0..flushes).map(bytes).sum();
        let wanted = json!({ "count": flushes, "bytes": released });
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
