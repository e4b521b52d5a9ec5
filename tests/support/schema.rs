//! What the JSON of `analyze` promises: its keys, and the kind of number that a key's ending tells.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use serde_json::Value;

pub const REPORT: &[&str] = &["schema", "snapshots"];
pub const SNAPSHOT: &[&str] = &[
    "path",
    "size_bytes",
    "events",
    "torch_version",
    "settings",
    "settings_string",
    "truncated",
    "warnings",
    "devices",
];
const WARNING: &[&str] = &["code", "message"];
const DEVICE: &[&str] = &[
    "device",
    "reserved_bytes",
    "allocated_bytes",
    "active_bytes",
    "requested_bytes",
    "segments",
    "blocks",
    "pools",
    "streams",
    "fragmentation",
    "peak",
    "ooms",
    "top_stacks",
    "at_peak",
    "steps",
    "leaks",
];
const HELD: &[&str] = &[
    "event",
    "phase",
    "step",
    "allocated_bytes",
    "blocks",
    "by_category",
    "by_phase",
    "by_age",
    "by_range",
    "by_file",
    "by_line",
    "by_stack",
    "kept_since_start",
];
const SEGMENTS: &[&str] = &["count", "small", "large", "expandable"];
const BLOCKS: &[&str] = &["active_allocated", "active_pending_free", "inactive"];
const COUNT: &[&str] = &["count", "bytes"];
const POOL: &[&str] = &["pool_id", "reserved_bytes", "allocated_bytes", "pending_bytes", "inactive_bytes", "streams"];
const STREAM: &[&str] =
    &["stream", "reserved_bytes", "allocated_bytes", "pending_bytes", "inactive_bytes", "largest_free_block_bytes"];
const FRAGMENTATION: &[&str] = &[
    "gap_ratio",
    "inactive_split_bytes",
    "inactive_split_ratio",
    "releasable_bytes",
    "stranded_bytes",
    "stranded_ratio",
    "largest_free_block_bytes",
    "external_ratio",
    "rounding_bytes",
    "rounding_ratio",
];
const PEAK: &[&str] = &["allocated_bytes", "reserved_bytes", "allocated_event", "reserved_event", "time_us"];
const OOM: &[&str] = &[
    "event",
    "requested_bytes",
    "segment_bytes",
    "stream",
    "pool_id",
    "device_free_bytes",
    "reserved_bytes",
    "allocated_bytes",
    "time_us",
    "verdict",
    "verdict_reason",
    "culprit",
    "frames",
    "shortfall_bytes",
    "causes",
    "blockers",
    "pending",
    "remedies",
];
const CAUSE: &[&str] = &["kind", "bytes", "note"];
const BLOCKER: &[&str] = &["bytes_unlocked", "bytes_released", "blocks", "bytes_held", "frames"];
const REMEDY: &[&str] = &["settings", "avoids_oom", "peak_reserved_bytes", "device_allocs", "device_frees"];
const STACK: &[&str] = &["bytes", "blocks", "share_ratio", "frames"];
const FRAME: &[&str] = &["file", "line", "name"];
const VERDICTS: &[&str] = &[
    "capacity",
    "fragmentation",
    "other-stream",
    "private-pool",
    "pending-free",
    "non-pytorch",
    "memory-limit",
    "spurious",
    "unknown",
];

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Fails unless `value` is an object with all of `keys`.
pub fn has(value: &Value, keys: &[&str]) {
    let object = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    for key in keys {
        assert!(object.contains_key(*key), "'{key}' is missing in {value}");
    }
}

fn all_have(values: &Value, keys: &[&str]) {
    for value in list(values) {
        has(value, keys);
    }
}

/// Fails unless `report` has every key that the command line's documentation names.
pub fn check(report: &Value) {
    has(report, REPORT);
    for snapshot in list(&report["snapshots"]) {
        has(snapshot, SNAPSHOT);
        all_have(&snapshot["warnings"], WARNING);
        for device in list(&snapshot["devices"]) {
            check_device(device);
        }
    }
    check_numbers("", report);
}

fn check_device(device: &Value) {
    has(device, DEVICE);
    has(&device["segments"], SEGMENTS);
    for kind in &SEGMENTS[1..] {
        has(&device["segments"][*kind], COUNT);
    }
    has(&device["blocks"], BLOCKS);
    for state in BLOCKS {
        has(&device["blocks"][*state], COUNT);
    }
    all_have(&device["pools"], POOL);
    all_have(&device["streams"], STREAM);
    for space in list(&device["pools"]).iter().chain(list(&device["streams"])) {
        let parts = ["allocated_bytes", "pending_bytes", "inactive_bytes"];
        let sum: u64 = parts.iter().map(|key| space[*key].as_u64().unwrap()).sum();
        assert_eq!(space["reserved_bytes"].as_u64(), Some(sum), "{space}");
    }
    has(&device["fragmentation"], FRAGMENTATION);
    has(&device["peak"], PEAK);
    if !device["at_peak"].is_null() {
        has(&device["at_peak"], HELD);
    }
    if let Some(last) = list(&device["ooms"]).last() {
        has(&last["held"], HELD);
    }
    for oom in list(&device["ooms"]) {
        has(oom, OOM);
        all_have(&oom["frames"], FRAME);
        all_have(&oom["causes"], CAUSE);
        all_have(&oom["blockers"], BLOCKER);
        all_have(&oom["remedies"], REMEDY);
        if !oom["culprit"].is_null() {
            has(&oom["culprit"], FRAME);
        }
        let verdict = oom["verdict"].as_str().unwrap();
        assert!(VERDICTS.contains(&verdict), "the verdict '{verdict}' is not documented");
    }
    for stack in list(&device["top_stacks"]) {
        has(stack, STACK);
        all_have(&stack["frames"], FRAME);
    }
}

/// `_bytes` and `_us` are integers, `_ratio` is a number of 0..1; times may be unknown.
pub fn check_numbers(key: &str, value: &Value) {
    match value {
        Value::Object(pairs) if key == "settings" => assert!(pairs.len() < 1000), // as written
        Value::Object(pairs) => pairs.iter().for_each(|(key, value)| check_numbers(key, value)),
        Value::Array(items) => items.iter().for_each(|value| check_numbers(key, value)),
        _ if key.ends_with("_bytes") => assert!(value.is_u64(), "{key}: {value}"),
        _ if key.ends_with("_us") => assert!(value.is_u64() || value.is_null(), "{key}: {value}"),
        _ if key.ends_with("_ratio") => {
            assert!(value.as_f64().is_some_and(|r| (0.0..=1.0).contains(&r)), "{key}: {value}");
        }
        _ => {}
    }
}

/// The sum over all `rows`.
pub fn sum(rows: &Value, key: &str) -> u64 {
    list(rows).iter().map(|row| row[key].as_u64().unwrap()).sum()
}
