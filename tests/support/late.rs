//! Recordings that began late, made of whole ones of one device with expandable segments.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use oomscope::snapshot::{Action, BlockState, Snapshot};
use serde_json::json;
use tempfile::TempDir;

/// The snapshot without the first half of its trace, as a recording that began late.
pub fn half(directory: &TempDir, snapshot: &Snapshot) -> String {
    let pool = |pool| json!(snapshot.pools.get(pool));
    let device = snapshot.device(0);
    let events = device.entries().skip(device.len() / 2).map(|event| {
        let addr = if event.action == Action::Oom { "device_free" } else { "addr" };
        json!({
            "action": event.action.name(), addr: event.addr, "size": event.size,
            "stream": event.stream, "time_us": event.time_us, "pool_id": event.pool.map(pool),
        })
    });
    let state = |state| match state {
        BlockState::ActiveAllocated => "active_allocated",
        BlockState::ActivePendingFree => "active_pending_free",
        BlockState::Inactive => "inactive",
    };
    let segments = snapshot.segments.iter().map(|segment| {
        let blocks = snapshot.blocks[segment.blocks.clone()].iter().map(|block| {
            json!({"address": block.address, "size": block.size,
                "requested_size": block.requested_size, "state": state(block.state)})
        });
        json!({
            "device": 0, "address": segment.address, "total_size": segment.total_size,
            "stream": segment.stream, "is_expandable": segment.is_expandable,
            "segment_type": if segment.is_small { "small" } else { "large" },
            "segment_pool_id": pool(segment.pool), "blocks": blocks.collect::<Vec<_>>(),
        })
    });
    let late = json!({
        "segments": segments.collect::<Vec<_>>(),
        "device_traces": [events.collect::<Vec<_>>()],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "expandable_segments": true},
    });
    let path = directory.path().join("late.json");
    std::fs::write(&path, late.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}
