//! Snapshots made by hand, and the answer on them.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::program;

/// The frames of a stack, the innermost first: file, line, function.
pub fn frames(of: &[(&str, u64, &str)]) -> Value {
    of.iter().map(|(file, line, name)| json!({"filename": file, "line": line, "name": name})).collect()
}

pub fn entry(action: &str, address: u64, size: u64, time: u64, frames: &Value) -> Value {
    json!({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames})
}

/// An allocated block.
pub fn live(address: u64, size: u64, frames: &Value) -> Value {
    json!({"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames})
}

pub fn free(address: u64, size: u64) -> Value {
    json!({"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []})
}

/// A segment of `device` that consists of `blocks`.
pub fn segment(device: u64, blocks: &[Value]) -> Value {
    let size: u64 = blocks.iter().map(|block| block["size"].as_u64().unwrap()).sum();
    json!({"device": device, "address": blocks[0]["address"], "total_size": size, "stream": 0, "segment_type": "large",
        "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": blocks})
}

pub fn snapshot(segments: &[Value], traces: &[Vec<Value>]) -> Value {
    json!({"segments": segments, "device_traces": traces})
}

/// What `analyze` with `options` answers on `snapshot`.
pub fn analyzed(snapshot: &Value, options: &[&str]) -> Value {
    let directory = TempDir::new().unwrap();
    let path = program::file(&directory, "made.json", snapshot.to_string().as_bytes());
    program::analyze(&[options, &[&path]].concat())
}
