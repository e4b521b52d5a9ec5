//! Traces that contradict themselves: the contradiction is named with the entry it is at, and nothing
//! panics or goes on for ever, whatever the file says.

use crate::support::program;

use oomscope::whatif::{ReplayReport, verify_study};

use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use serde_json::{Value, json};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const A: u64 = 0x5000_0000_0000;
const TOP: u64 = u64::MAX - 2 * MIB + 1;

fn event(action: &str, addr: u64, size: u64) -> Value {
    let key = if action == "oom" { "device_free" } else { "addr" };
    json!({"action": action, key: addr, "size": size, "stream": 0, "pool_id": [0, 0],
        "user_metadata": "", "compile_context": "N/A"})
}

fn with(mut event: Value, key: &str, value: Value) -> Value {
    event[key] = value;
    event
}

/// A segment of 2 MiB at `addr`, with a live block of 1024 bytes at its beginning.
fn sound(addr: u64) -> Vec<Value> {
    vec![event("segment_alloc", addr, 2 * MIB), event("alloc", addr, 1000)]
}

fn segment(device: u64, addr: u64) -> Value {
    let block = |at: u64, size: u64, requested: u64, state: &str| json!({"address": at, "size": size, "requested_size": requested, "state": state});
    json!({"device": device, "address": addr, "total_size": 2 * MIB, "stream": 0,
        "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false,
        "blocks": [block(addr, 1024, 1000, "active_allocated"),
            block(addr + 1024, 2 * MIB - 1024, 0, "inactive")]})
}

/// One that 2.15 could have written, of these traces.
fn file(segments: Vec<Value>, traces: Vec<Vec<Value>>) -> Value {
    json!({"segments": segments, "device_traces": traces, "host_segments": [], "host_traces": [],
        "external_annotations": [], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1, "expandable_segments": false,
            "garbage_collection_threshold": 0.0}})
}

pub(super) fn read(file: &Value) -> Snapshot {
    Snapshot::read(&serde_json::to_vec(file).unwrap(), &|_| {}).unwrap()
}

pub(super) fn verify(file: &Value) -> ReplayReport {
    let snapshot = read(file);
    verify_study(&Study::new(&snapshot, Scope::default()), "made by hand")
}

/// The sound beginning and then `rest`; a segment is there in the end.
fn then(rest: Vec<Value>) -> Value {
    file(vec![segment(0, A)], vec![[sound(A), rest].concat()])
}

#[test]
fn sound_traces_are_exact() {
    let report = verify(&then(Vec::new()));
    let device = &report.devices[0];
    assert_eq!((device.exact, device.end_state_exact, device.start), (Some(true), Some(true), "empty"));
    assert_eq!(report.warnings, []);
}

/// Where it parts and a piece of why.
fn cases() -> Vec<(&'static str, Value, usize, &'static str)> {
    let unknown_free = "frees an address where nothing is allocated";
    let unknown_completion = "completes a free that was never requested";
    let overlapping = "no size, exceeds the address space or overlaps";
    let impossible = "a size that never reaches the allocator";
    let idle = "where the model had nothing left to do";
    let frees = |address, size| vec![event("free_requested", address, size), event("free_completed", address, size)];
    let in_segment = |address, size, used| vec![event("segment_alloc", address, size), event("alloc", address, used)];
    let completed = |size| event("free_completed", A, size);
    vec![
        ("free of an unknown address", then(vec![event("free_requested", A + 512, 9)]), 2, unknown_free),
        ("free of the inside of a block", then(frees(A + 512, 1000)), 2, unknown_free),
        ("free of another size", then(frees(A, 999)), 2, "the model chose"),
        (
            "free on another stream",
            then(vec![with(event("free_requested", A, 1000), "stream", json!(7))]),
            2,
            "PyTorch free_requested of 0.98 KiB at 0x500000000000 on stream 7",
        ),
        (
            "free in another pool",
            then(vec![with(event("free_requested", A, 1000), "pool_id", json!([0, 3]))]),
            2,
            "in another memory pool",
        ),
        ("double free", then([frees(A, 1000), frees(A, 1000)].concat()), 4, unknown_free),
        ("completion of nothing", then(vec![completed(1000), event("alloc", A + 1024, 10)]), 2, unknown_completion),
        ("completion of nothing at the end", then(vec![completed(1000)]), 2, unknown_completion),
        ("completion twice", then([frees(A, 1000), vec![completed(1000)]].concat()), 4, unknown_completion),
        ("a segment on a segment", then(in_segment(A + MIB, 20 * MIB, 2 * MIB)), 2, overlapping),
        ("the same segment twice", then(in_segment(A, 2 * MIB, 2 * MIB - 1024)), 2, overlapping),
        ("a segment past the end of memory", then(in_segment(TOP + MIB, 2 * MIB, 2 * MIB)), 2, overlapping),
        ("an empty segment", then(in_segment(A + 4 * MIB, 0, 2 * MIB)), 2, overlapping),
        ("alloc outside every segment", then(vec![event("alloc", A + 64 * MIB, 512)]), 2, "the model chose"),
        ("alloc on a live block", then(vec![event("alloc", A, 512)]), 2, "the model chose"),
        ("alloc of nothing", then(vec![event("alloc", A + 1024, 0)]), 2, impossible),
        ("alloc of 2^61", then(vec![event("alloc", A + 1024, 1 << 61)]), 2, impossible),
        ("oom of 2^64 - 1", then(vec![event("oom", 0, u64::MAX)]), 2, impossible),
        ("an oom that had memory", then(vec![event("oom", 1 << 40, 512)]), 2, "the model chose"),
        (
            "half a segment freed",
            then([frees(A, 1000), vec![event("segment_free", A, MIB)]].concat()),
            4,
            "the model chose",
        ),
        ("a live segment freed", then(vec![event("segment_free", A, 2 * MIB)]), 2, idle),
        // It would have been there from the start, and the first request would have been served from it.
        (
            "a segment freed that never was",
            then(vec![event("segment_free", A + 64 * MIB, 2 * MIB)]),
            0,
            "the model chose",
        ),
        ("unmap of a segment", then(vec![event("segment_unmap", A, 2 * MIB)]), 2, idle),
        ("growth for nothing", then(vec![event("segment_alloc", A + 64 * MIB, 2 * MIB)]), 2, ""),
    ]
}

#[test]
fn every_contradiction_is_named_with_its_entry() {
    let directory = TempDir::new().unwrap();
    let mut wrong = Vec::new();
    for (name, file, event, why) in cases() {
        let report = verify(&file);
        let device = &report.devices[0];
        let found = device.first_divergence.as_ref().map(|d| (d.event, d.why.as_str()));
        let is_named = found.is_some_and(|(at, text)| at == event && text.contains(why));
        if !is_named || device.exact != Some(false) {
            wrong.push(format!("{name}: {found:?} rather than {event} {why}; {}", device.start));
            continue;
        }
        let text = serde_json::to_vec(&file).unwrap();
        let ran = program::run(&["replay", &program::file(&directory, "bad.json", &text)]);
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{name}");
        assert!(ran.out.contains("at entry"), "{name}: {}", ran.out);
        let capacity = ["replay", "--capacity", "1GiB", &program::file(&directory, "bad.json", &text)];
        assert_eq!(program::run(&capacity).code, 0, "{name}: a what-if is no gate");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn warned(report: &ReplayReport, code: &str) -> bool {
    report.warnings.iter().any(|warning| warning.code.word() == code)
}

fn timed(mut entries: Vec<Value>, times: &[u64]) -> Vec<Value> {
    entries.iter_mut().zip(times).for_each(|(entry, time)| entry["time_us"] = json!(time));
    entries
}

#[test]
fn time_that_goes_backwards_is_reported_and_is_no_divergence() {
    let trace = |times: &[u64]| {
        let rest = vec![event("alloc", A + 1024, 100), event("snapshot", 0, 1536)];
        timed([sound(A), rest].concat(), times)
    };
    let mut end = segment(0, A);
    let blocks = end["blocks"].as_array_mut().unwrap();
    blocks[1] = json!({"address": A + 1024, "size": 512, "requested_size": 100,
        "state": "active_allocated"});
    blocks.push(json!({"address": A + 1536, "size": 2 * MIB - 1536, "requested_size": 0,
        "state": "inactive"}));
    for (times, expected) in [([10, 10, 11, 12], false), ([10, 11, 9, 12], true)] {
        let report = verify(&file(vec![end.clone()], vec![trace(&times)]));
        assert_eq!(report.devices[0].exact, Some(true));
        assert_eq!(warned(&report, "time-reversed"), expected, "{times:?}");
    }
}

/// A ring whose limit grew after it had wrapped: the newest entries stand before the oldest.
#[test]
fn a_ring_out_of_order_is_reported() {
    let newer = vec![event("free_requested", A, 1000), event("free_completed", A, 1000)];
    let trace = timed([newer, sound(A)].concat(), &[12, 12, 10, 11]);
    let mut end = segment(0, A);
    end["blocks"] = json!([{"address": A, "size": 2 * MIB, "requested_size": 1000,
        "state": "inactive"}]);
    let report = verify(&file(vec![end], vec![trace]));
    let device = &report.devices[0];
    assert!(device.exact == Some(false) || warned(&report, "time-reversed"), "{device:?}");
}

#[test]
fn entries_of_another_device_diverge_on_theirs() {
    let there = A + (1 << 36);
    let segments = || vec![segment(0, A), segment(1, there)];
    let sorted = verify(&file(segments(), vec![sound(A), sound(there)]));
    assert!(sorted.devices.iter().all(|device| device.exact == Some(true)));
    assert_eq!(sorted.devices.len(), 2);
    let free = |addr: u64| event("free_requested", addr, 1000);
    let first = [sound(A), vec![free(there)]].concat();
    let mixed = verify(&file(segments(), vec![first, sound(there)]));
    let divergence = mixed.devices[0].first_divergence.as_ref().unwrap();
    assert_eq!(divergence.event, 2);
    assert_eq!(mixed.devices[1].exact, Some(true), "the other is as it was");
}

#[test]
fn blocks_outside_every_segment_before_the_recording_are_reported() {
    let rest = vec![event("free_requested", A + 64 * MIB, 1000)];
    let report = verify(&file(vec![segment(0, A)], vec![rest]));
    let device = &report.devices[0];
    assert_eq!(device.start, "reconstructed");
    assert!(device.exact == Some(false) || warned(&report, "start-inconsistent"), "{device:?}");
}

#[test]
fn other_allocators_are_reported() {
    let mut other = then(Vec::new());
    other["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = json!("backend:cudaMallocAsync");
    assert!(warned(&verify(&other), "foreign-backend"));
    // Stacks name others.
    for (package, is_foreign) in [("torch_npu", true), ("torch", false), ("my_torch_npu", false)] {
        let file = format!(r"C:\env\site-packages\{package}\npu\memory.py");
        let frame = json!({"filename": file, "name": "empty_cache", "line": 1});
        let mut named = then(Vec::new());
        named["device_traces"][0][1]["frames"] = json!([frame]);
        assert_eq!(warned(&verify(&named), "foreign-backend"), is_foreign, "{package}");
    }
}

#[test]
fn segments_that_contradict_themselves_were_not_allocated() {
    let none = verify(&then(Vec::new()));
    assert!(!warned(&none, "not-allocated"));
    let odd: [(&str, Value); 4] = [
        ("/segments/0/blocks/1/address", json!(A + 2048)),
        ("/segments/0/blocks/0/requested_size", json!(2000)),
        ("/segments/0/total_size", json!(4 * MIB)),
        ("/segments/0/blocks/0/size", json!(512)),
    ];
    for (place, value) in odd {
        let mut file = then(Vec::new());
        *file.pointer_mut(place).unwrap() = value;
        assert!(warned(&verify(&file), "not-allocated"), "{place}");
    }
    let mut twice = then(Vec::new());
    twice["segments"] = json!([segment(0, A), segment(0, A + MIB)]);
    assert!(warned(&verify(&twice), "not-allocated"));
    twice["segments"] = json!([segment(0, A), segment(1, A + MIB)]);
    assert!(!warned(&verify(&twice), "not-allocated"), "each device has addresses of its own");
}

/// Where no settings are recorded, the sizes at the divergence suggest some: whatever they are.
#[test]
fn a_size_that_no_setting_can_have_suggests_none() {
    let mut file = then(vec![event("segment_free", TOP, u64::MAX)]);
    file.as_object_mut().unwrap().remove("allocator_settings");
    let device = &verify(&file).devices[0];
    assert_eq!(device.first_divergence.as_ref().map(|parted| parted.event), Some(2));
}
