//! A small snapshot by hand, with everything that PyTorch 2.15 writes.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use super::pickle_bytes::{Py, dict};

pub fn frame(file: &str, line: i32, name: &str) -> Py {
    dict([("name", name.into()), ("filename", file.into()), ("line", line.into())])
}

/// The stack that most records of the sample have.
pub fn frames() -> Py {
    vec![frame("/app/model.py", 10, "forward"), frame("/app/train.py", 99, "<module>")].into()
}

pub fn block(address: u64, size: u64, state: &str) -> Py {
    dict([
        ("address", address.into()),
        ("size", size.into()),
        ("requested_size", (size - 12).into()),
        ("state", state.into()),
        ("frames", if state == "inactive" { vec![].into() } else { frames() }),
    ])
}

/// A segment of `device` made of `blocks`, of 2 MiB.
pub fn segment(device: u64, address: u64, blocks: Vec<Py>) -> Py {
    dict([
        ("device", device.into()),
        ("address", address.into()),
        ("total_size", (2u64 << 20).into()),
        ("allocated_size", (1u64 << 20).into()),
        ("active_size", (1u64 << 20).into()),
        ("requested_size", ((1u64 << 20) - 12).into()),
        ("stream", 0.into()),
        ("segment_type", "small".into()),
        ("segment_pool_id", Py::Tuple(vec![0.into(), 0.into()])),
        ("is_expandable", Py::Bool(false)),
        ("frames", frames()),
        ("blocks", blocks.into()),
    ])
}

pub fn two_blocks(address: u64) -> Vec<Py> {
    let half = 1u64 << 20;
    vec![block(address, half, "active_allocated"), block(address + half, half, "inactive")]
}

pub fn event(action: &str, addr: u64, size: u64, time_us: u64) -> Py {
    dict([
        ("action", action.into()),
        ("addr", addr.into()),
        ("size", size.into()),
        ("stream", 0.into()),
        ("time_us", time_us.into()),
        ("compile_context", "N/A".into()),
        ("user_metadata", "".into()),
        ("pool_id", Py::Tuple(vec![0.into(), 0.into()])),
        ("frames", frames()),
    ])
}

pub const ADDRESS: u64 = 0x7f00_0000_0000;
pub const TIME: u64 = 1_795_241_347_396_516;

pub fn events(address: u64) -> Vec<Py> {
    vec![
        event("segment_alloc", address, 2 << 20, TIME),
        event("alloc", address, (1 << 20) - 12, TIME + 1),
        event("alloc", address + (1 << 20), 500, TIME + 2),
        event("free_requested", address + (1 << 20), 500, TIME + 3),
        event("free_completed", address + (1 << 20), 500, TIME + 3),
    ]
}

pub fn settings() -> Py {
    dict([
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64".into()),
        ("max_split_size", (64 << 20).into()),
        ("garbage_collection_threshold", Py::Float(0.5)),
        ("expandable_segments", Py::Bool(false)),
        ("graph_capture_record_stream_reuse", Py::Bool(false)),
        ("max_round_threshold", (-1).into()),
        ("roundup_power2_divisions", dict([("1", 0.into()), ("2", 4.into())])),
    ])
}

pub fn snapshot_of(segments: Vec<Py>, traces: Vec<Py>) -> Py {
    dict([
        ("segments", segments.into()),
        ("device_traces", traces.into()),
        ("allocator_settings", settings()),
        ("external_annotations", annotations()),
        ("host_segments", vec![dict([("address", 4096.into()), ("size", 8192.into())])].into()),
        ("host_traces", vec![].into()),
    ])
}

fn annotations() -> Py {
    let mark = |stage: &str, time: u64| {
        dict([
            ("name", "Optimizer.step#AdamW.step".into()),
            ("stage", stage.into()),
            ("device", 0.into()),
            ("time_us", time.into()),
        ])
    };
    vec![mark("START", TIME + 1), mark("END", TIME + 3)].into()
}

/// One device, one segment of two blocks, five trace entries.
pub fn snapshot() -> Py {
    snapshot_of(vec![segment(0, ADDRESS, two_blocks(ADDRESS))], vec![events(ADDRESS).into()])
}

/// `snapshot()` with its one segment, first block or first entry changed by `change`.
pub fn changed_segment(change: impl FnOnce(Py) -> Py) -> Py {
    let segment = change(segment(0, ADDRESS, two_blocks(ADDRESS)));
    snapshot_of(vec![segment], vec![events(ADDRESS).into()])
}

pub fn changed_block(change: impl FnOnce(Py) -> Py) -> Py {
    let mut blocks = two_blocks(ADDRESS);
    blocks[0] = change(blocks[0].clone());
    snapshot_of(vec![segment(0, ADDRESS, blocks)], vec![events(ADDRESS).into()])
}

pub fn changed_event(change: impl FnOnce(Py) -> Py) -> Py {
    let mut events = events(ADDRESS);
    events[0] = change(events[0].clone());
    snapshot_of(vec![segment(0, ADDRESS, two_blocks(ADDRESS))], vec![events.into()])
}
