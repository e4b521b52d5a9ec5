//! What a file gets is in proportion to it: a stack is bounded in every report, however deep it is and however often
//! it is referred to.

use crate::support::peak_heap;
use crate::support::pickle_bytes::{Py, dict};
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::output::document::{Style, html, markdown, terminal};
use oomscope::output::{formats, report};
use oomscope::snapshot::Snapshot;
use serde_json::Value;

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;
/// The bars are 60 MB and 500 MB for a whole process and all formats.
const MAX_OUTPUT: usize = 50_000_000;
const MAX_HEAP: usize = 300_000_000;

/// A list of `depth` references to one frame, which is in the memo from its first use on.
fn stack(depth: usize, name: &str, is_first: bool) -> Py {
    // Values of `Py` are not put into the memo, so these slots are free.
    const LIST: [u8; 4] = 1_u32.to_le_bytes();
    const FRAME: [u8; 4] = 2_u32.to_le_bytes();
    if !is_first {
        return Py::Raw([b"j", &LIST[..]].concat());
    }
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        [b"X", &length[..], text.as_bytes()].concat()
    };
    let mut ops = [b"]r", &LIST[..], b"(}("].concat();
    for (key, value) in [("filename", text("/app/train.py")), ("line", b"K\x07".to_vec()), ("name", text(name))] {
        ops.extend([text(key), value].concat());
    }
    ops.extend([b"ur", &FRAME[..]].concat());
    for _ in 1..depth {
        ops.extend([b"j", &FRAME[..]].concat());
    }
    ops.push(b'e');
    Py::Raw(ops)
}

/// Devices with a live segment and so many failed requests each, all with one stack of `depth` frames.
fn failing(devices: u64, failures: u64, depth: usize, name: &str) -> Snapshot {
    let mut is_first = true;
    let mut frames = || stack(depth, name, std::mem::take(&mut is_first));
    let mut entry = |action: &str, key: &str, addr: u64, size: u64| {
        let entry = [("action", action.into()), (key, addr.into()), ("size", size.into()), ("stream", 0.into())];
        dict(entry).with("frames", frames()).with("time_us", 5)
    };
    let mut traces = Vec::new();
    for device in 0..devices {
        let addr = BASE + (device << 36);
        let mut trace = vec![entry("segment_alloc", "addr", addr, 20 * MIB), entry("alloc", "addr", addr, 20 * MIB)];
        trace.extend((0..failures).map(|at| entry("oom", "device_free", MIB, 30 * MIB + 512 * at)));
        traces.push(Py::List(trace));
    }
    let segments = (0..devices).map(|device| {
        let (addr, size) = (Py::from(BASE + (device << 36)), Py::from(20 * MIB));
        let block = dict([("address", addr.clone()), ("size", size.clone()), ("requested_size", size.clone())]);
        let block = block.with("state", "active_allocated").with("frames", stack(depth, name, false));
        let segment = dict([("device", device.into()), ("address", addr), ("total_size", size.clone())]);
        segment
            .with("allocated_size", size.clone())
            .with("active_size", size)
            .with("stream", 0)
            .with("segment_type", "large")
            .with("segment_pool_id", Py::Tuple(vec![0.into(), 0.into()]))
            .with("is_expandable", Py::Bool(false))
            .with("blocks", vec![block])
    });
    // The first reference is in the traces.
    let segments = Py::List(segments.collect());
    let snapshot = dict([("device_traces", Py::List(traces)), ("segments", segments)]);
    Snapshot::read(&snapshot.pickle(4), &|_| ()).unwrap()
}

/// Bytes of every format, the most heap for any of them, and the JSON.
fn cost(snapshot: &Snapshot) -> (Vec<usize>, usize, Value) {
    const STYLE: Style = Style { width: 100, unicode: true, colour: false };
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    alone.install(|| {
        let ((sizes, json), heap) = peak_heap::peak_of(|| {
            let report = AnalyzeReport::new(
                vec![analyze(snapshot, "a", 1, Options { top: 5, ..Options::default() })],
                Vec::new(),
                5,
            );
            let page = report::analyze(&report);
            let json = formats::json(&report).unwrap();
            (vec![json.len(), terminal(&page, STYLE).len(), markdown(&page).len(), html(&page).len()], json)
        });
        (sizes, heap, crate::support::program::read_with_details(&json))
    })
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn deep_stacks_and_many_failures_have_bounds() {
    let worst_name = "\u{1b}\u{202e}".repeat(2000);
    for (devices, failures, depth, name) in
        [(1, 1, 2_000_000, "f"), (1, 2000, 10_000, &worst_name), (8, 1000, 2000, "f"), (128, 100, 1000, &worst_name)]
    {
        let snapshot = failing(devices, failures, depth, name);
        let (sizes, heap, report) = cost(&snapshot);
        let what = format!("{devices} devices, {failures} failures, {depth} frames: {sizes:?} bytes, {heap} of heap");
        assert!(sizes.iter().all(|size| *size < MAX_OUTPUT) && heap < MAX_HEAP, "{what}");
        let device = &report["snapshots"][0]["devices"][0];
        for stack in [device["ooms"].as_array().unwrap().last().unwrap(), &device["top_stacks"][0]] {
            let shown = stack["frames"].as_array().unwrap().len();
            let left_out = stack["frames_left_out"].as_u64().unwrap_or(0);
            assert!(shown > 0 && shown as u64 + left_out == depth as u64, "{what}: {shown} and {left_out}");
        }
    }
}

/// Thousands of frames may share one text of megabytes.
#[test]
fn long_names_are_truncated_when_they_are_read() {
    let name = "é".repeat(50_000);
    let snapshot = failing(1, 1, 3, &name);
    let frame = snapshot.stacks.all_frames().next().unwrap();
    let read = snapshot.text(frame.name);
    assert!(read.len() < 1000 && read.starts_with(&name[..320]) && read.contains("(50,000 characters)"), "{read}");
    assert!(read.ends_with(&name[..200]), "{read}");
    let longest = "f".repeat(8192);
    assert_eq!(failing(1, 1, 3, &longest).stacks.all_frames().count(), 1);
    let kept = failing(1, 1, 3, &longest);
    assert_eq!(kept.text(kept.stacks.all_frames().next().unwrap().name), longest);
}

#[test]
fn stacks_of_real_programs_are_whole() {
    let snapshot = failing(8, 3, 400, "forward");
    let (_, _, report) = cost(&snapshot);
    for device in report["snapshots"][0]["devices"].as_array().unwrap() {
        let failed = &device["ooms"][2];
        assert_eq!((failed["frames"].as_array().unwrap().len(), failed.get("frames_left_out")), (400, None));
    }
}

#[test]
fn more_devices_than_pytorch_has_are_refused() {
    assert_eq!(failing(128, 0, 1, "f").devices().count(), 128);
    let traces = vec![Py::List(vec![dict([("action", "oom".into()), ("size", 1.into())])]); 129];
    let snapshot = dict([("segments", Py::List(Vec::new())), ("device_traces", Py::List(traces))]);
    let error = Snapshot::read(&snapshot.pickle(4), &|_| ()).unwrap_err().to_string();
    assert!(error.contains("129 devices") && error.contains("at most 128"), "{error}");
}
