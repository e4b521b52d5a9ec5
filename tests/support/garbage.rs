//! Snapshots that no allocator would write: any action at any address with any size, on segments that
//! may overlap, adjoin or wrap around the end of memory.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use oomscope::allocator::conf::Settings;
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ACTIONS: [&str; 12] = [
    "alloc",
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_alloc",
    "segment_map",
    "segment_free",
    "segment_unmap",
    "oom",
    "snapshot",
    "of a release to come",
];
const STATES: [&str; 4] = ["active_allocated", "active_pending_free", "active_awaiting_free", "inactive"];

/// Few enough addresses that most entries meet others; and the ends of memory.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..24u64).prop_map(|n| 0x5000_0000_0000 + n * MIB / 2),
        2 => (0..8u64).prop_map(|n| n * 512),
        1 => (0..4u64).prop_map(|n| u64::MAX - n * MIB),
        1 => any::<u64>(),
    ]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (0..12u64).prop_map(|n| n * MIB / 2),
        2 => 0..2048u64,
        1 => Just(2 * MIB),
        1 => Just(20 * MIB),
        1 => (0..4u64).prop_map(|n| u64::MAX / 2 - 1 + n),
        1 => any::<u64>(),
    ]
}

fn event() -> impl Strategy<Value = Value> {
    let pool = prop::option::of(prop::sample::select(vec![[0, 0], [0, 1], [7, 0]]));
    (prop::sample::select(&ACTIONS[..]), address(), size(), 0..3u64, pool).prop_map(
        |(action, address, size, stream, pool)| {
            let key = if action == "oom" { "device_free" } else { "addr" };
            let mut event = json!({"action": action, key: address, "size": size, "stream": stream});
            if let Some(pool) = pool {
                event["pool_id"] = json!(pool);
            }
            event
        },
    )
}

fn block() -> impl Strategy<Value = Value> {
    (address(), size(), size(), prop::sample::select(&STATES[..])).prop_map(
        |(address, size, requested, state)| {
            json!({"address": address, "size": size, "requested_size": requested, "state": state})
        },
    )
}

fn segment() -> impl Strategy<Value = Value> {
    let flags = (any::<bool>(), any::<bool>());
    (0..2u64, address(), size(), 0..3u64, flags, prop::collection::vec(block(), 0..4)).prop_map(
        |(device, address, size, stream, (is_small, is_expandable), blocks)| {
            json!({
                "device": device,
                "address": address,
                "total_size": size,
                "stream": stream,
                "segment_type": if is_small { "small" } else { "large" },
                "segment_pool_id": [0, stream],
                "is_expandable": is_expandable,
                "blocks": blocks,
            })
        },
    )
}

pub fn snapshot() -> impl Strategy<Value = Value> {
    let trace = || prop::collection::vec(event(), 0..40);
    let segments = prop::collection::vec(segment(), 0..6);
    let settings = (prop::option::of(0..40 * MIB), any::<bool>(), 0..40u64);
    (segments, trace(), trace(), prop::option::of(settings)).prop_map(|(segments, first, second, settings)| {
        let mut file = json!({"segments": segments, "device_traces": [first, second]});
        if let Some((max_split_size, expandable, divisions)) = settings {
            file["allocator_settings"] = json!({
                "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:0",
                "max_split_size": max_split_size,
                "expandable_segments": expandable,
                "roundup_power2_divisions": {"1": divisions, "2": u64::MAX, "8": 3},
            });
        }
        file
    })
}

pub fn settings() -> impl Strategy<Value = Settings> {
    let sizes = || prop_oneof![0..40 * MIB, Just(u64::MAX), any::<u64>()];
    let divisions = prop::array::uniform16(prop_oneof![0..20u64, any::<u64>()]);
    (sizes(), any::<bool>(), divisions, any::<bool>(), sizes()).prop_map(
        |(max_split_size, expandable_segments, roundup, exact, large_segment_size)| Settings {
            max_split_size,
            expandable_segments,
            roundup_power2_divisions: roundup,
            one_division_is_exact: exact,
            large_segment_size,
            ..Settings::default()
        },
    )
}
