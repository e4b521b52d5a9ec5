//! Work grows in proportion to the file, whatever there is much of. It is counted, not timed: steps (what is read of the
//! snapshot, free blocks searched), and what is taken from the heap.

use crate::support::peak_heap;
use oomscope::analysis::timeline::timeline;
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::base::step_counter::step_count;
use oomscope::cli::Config;
use oomscope::compare::diff::{ComparedMoment, DiffOptions, File, diff};
use oomscope::compare::gate::{AllowMissing, Gate, Limits, judge};
use oomscope::output::document::{Style, terminal};
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use oomscope::whatif::{WhatIfOptions, compare_settings};
use serde_json::{Value, json};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
/// How many of a thing, and how many times as many.
const FEW: u64 = 150;
const TIMES: u64 = 8;

fn frames(line: u64) -> Value {
    json!([{"filename": "/app/train.py", "line": line % 1_000_000, "name": "f"}])
}

pub(crate) fn entry(action: &str, addr: u64, size: u64, stream: u64, time: u64) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1_000 + time,
           "frames": frames(1)})
}

/// A segment of `device` that is one block, or the blocks of `sizes`.
pub(crate) fn segment(device: u64, addr: u64, stream: u64, pool: u64, sizes: &[u64]) -> Value {
    let mut at = addr;
    let blocks = sizes.iter().enumerate().map(|(line, size)| {
        at += size;
        json!({"address": at - size, "size": size, "requested_size": size, "state": "active_allocated",
               "frames": frames(line as u64)})
    });
    let blocks: Vec<Value> = blocks.collect();
    let total: u64 = sizes.iter().sum();
    json!({"device": device, "address": addr, "total_size": total, "allocated_size": total,
           "active_size": total, "requested_size": total, "stream": stream,
           "segment_type": if sizes.len() > 1 { "small" } else { "large" }, "segment_pool_id": [pool, 0],
           "is_expandable": false, "frames": frames(1), "blocks": blocks})
}

pub(crate) fn file_with_settings(segments: Vec<Value>, trace: Vec<Value>, settings: Value) -> Snapshot {
    let whole = json!({"segments": segments, "device_traces": [trace], "allocator_settings": settings});
    Snapshot::read(whole.to_string().as_bytes(), &|_| ()).unwrap()
}

fn file(segments: Vec<Value>, traces: Vec<Vec<Value>>, annotations: Vec<Value>) -> Snapshot {
    let settings = json!({"PYTORCH_CUDA_ALLOC_CONF": ""});
    let whole = json!({"segments": segments, "device_traces": traces, "allocator_settings": settings,
                       "external_annotations": annotations});
    Snapshot::read(whole.to_string().as_bytes(), &|_| ()).unwrap()
}

/// `n` segments of one block each, on streams, in pools or on devices of their own.
fn apart(n: u64, of: impl Fn(u64) -> [u64; 3]) -> Snapshot {
    let (mut segments, mut traces) = (Vec::new(), Vec::new());
    for at in 0..n {
        let ([device, stream, pool], addr) = (of(at), BASE + at * 20 * MIB);
        segments.push(segment(device, addr, stream, pool, &[20 * MIB]));
        traces.resize(device as usize + 1, Vec::new());
        for action in ["segment_alloc", "alloc"] {
            traces[device as usize].push(entry(action, addr, 20 * MIB, stream, at));
        }
    }
    file(segments, traces, Vec::new())
}

fn failures(n: u64) -> Snapshot {
    let mut trace = vec![entry("segment_alloc", BASE, 20 * MIB, 0, 0), entry("alloc", BASE, 20 * MIB, 0, 0)];
    trace.extend((0..n).map(|at| entry("oom", 10 * MIB, 30 * MIB, 0, at)));
    file(vec![segment(0, BASE, 0, 0, &[20 * MIB])], vec![trace], Vec::new())
}

fn failure_after_each_allocation(n: u64) -> Snapshot {
    let addr = |at: u64| BASE + at * 20 * MIB;
    let entries = (0..n).flat_map(|at| {
        let grown = ["segment_alloc", "alloc"].map(|action| entry(action, addr(at), 20 * MIB, 0, at));
        grown.into_iter().chain([entry("oom", MIB, 30 * MIB, 0, at)])
    });
    file((0..n).map(|at| segment(0, addr(at), 0, 0, &[20 * MIB])).collect(), vec![entries.collect()], Vec::new())
}

/// An expandable range of which every other granule is unmapped again. Then it grows.
fn half_unmapped(n: u64) -> Snapshot {
    let addr = |at: u64| BASE + at * 20 * MIB;
    let act = |actions: &[&str], at: u64, granules: u64| -> Vec<Value> {
        actions.iter().map(|action| entry(action, addr(at), granules * 20 * MIB, 0, at)).collect()
    };
    let mut trace: Vec<Value> = (0..n).flat_map(|at| act(&["segment_map", "alloc"], at, 1)).collect();
    let unmapped = (0..n).step_by(2);
    trace.extend(unmapped.flat_map(|at| act(&["free_requested", "free_completed", "segment_unmap"], at, 1)));
    trace.extend((0..n).flat_map(|at| act(&["segment_map", "alloc"], n + 2 * at, 2)));
    let expandable = |at: u64, blocks: &[u64]| {
        let mut segment = segment(0, addr(at), 0, 0, blocks);
        segment["is_expandable"] = json!(true);
        segment["segment_type"] = json!("large");
        segment
    };
    let mut segments: Vec<Value> = (1..n).step_by(2).map(|at| expandable(at, &[20 * MIB])).collect();
    segments.push(expandable(n, &vec![40 * MIB; n as usize]));
    let settings = json!({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": true});
    file_with_settings(segments, trace, settings)
}

/// Segments that are freed and too small for the next request.
fn growing_segments(n: u64) -> Snapshot {
    let (mut segments, mut trace, mut addr) = (Vec::new(), Vec::new(), BASE);
    for at in 0..n {
        let size = 20 * MIB + at * 2 * MIB;
        for action in ["segment_alloc", "alloc", "free_requested", "free_completed"] {
            trace.push(entry(action, addr, size, 0, at));
        }
        let mut cached = segment(0, addr, 0, 0, &[size]);
        cached["blocks"][0]["state"] = json!("inactive");
        segments.push(cached);
        addr += size;
    }
    file(segments, vec![trace], Vec::new())
}

/// Small blocks, each of a line of its own, every other one freed and allocated again.
fn small(n: u64) -> Snapshot {
    let (mut segments, mut trace) = (Vec::new(), Vec::new());
    for at in 0..n / 50 {
        let addr = BASE + at * 2 * MIB;
        let mut sizes = vec![512; 49];
        sizes.push(2 * MIB - 49 * 512);
        segments.push(segment(0, addr, 0, 0, &sizes));
        trace.push(entry("segment_alloc", addr, 2 * MIB, 0, at));
        for (block, size) in sizes.iter().enumerate() {
            let block_at = addr + block as u64 * 512;
            for action in ["alloc", "free_requested", "free_completed", "alloc"] {
                let mut one = entry(action, block_at, *size, 0, at);
                one["frames"] = frames(at * 50 + block as u64);
                trace.push(one);
            }
        }
    }
    file(segments, vec![trace], Vec::new())
}

fn nested_annotations(n: u64) -> Snapshot {
    let mark =
        |stage: &str, at: u64| json!({"name": format!("range {at}"), "stage": stage, "device": 0, "time_us": at});
    let begin = (0..n).map(|at| mark("START", 900 + at));
    let marks = begin.chain((0..n).map(|at| mark("END", 900 + 3 * n - at)));
    let trace = (0..n).flat_map(|at| {
        let addr = BASE + at * 20 * MIB;
        ["segment_alloc", "alloc"].map(|action| entry(action, addr, 20 * MIB, 0, at))
    });
    let segments = (0..n).map(|at| segment(0, BASE + at * 20 * MIB, 0, 0, &[20 * MIB]));
    file(segments.collect(), vec![trace.collect()], marks.collect())
}

/// What `answer` of `snapshot` costs: steps, bytes taken.
fn cost(snapshot: &Snapshot, answer: fn(&Snapshot)) -> [u64; 2] {
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    alone.install(|| {
        let before = [step_count(), peak_heap::taken() as u64];
        answer(snapshot);
        [step_count() - before[0], peak_heap::taken() as u64 - before[1]]
    })
}

pub(crate) fn grows_in_proportion(what: &str, made: &dyn Fn(u64) -> Snapshot) {
    let [few, many] = [made(FEW), made(FEW * TIMES)];
    for (command, answer) in ANSWERS {
        let (few, many) = (cost(&few, answer), cost(&many, answer));
        for (kind, (few, many)) in ["steps", "taken"].into_iter().zip(few.into_iter().zip(many)) {
            assert!(
                many <= few.max(1) * TIMES * 3 / 2,
                "{command} of {TIMES} times as many {what}: {kind} {few} before, {many} after"
            );
        }
    }
}

/// A command, and what answers it.
type Answer = (&'static str, fn(&Snapshot));

const STYLE: Style = Style { width: 100, unicode: true, colour: false };

const ANSWERS: [Answer; 6] = [
    ("analyze", |snapshot| {
        let report = analyze(snapshot, "a", 1, Options::default());
        let report = AnalyzeReport::new(vec![report], Vec::new(), 5);
        terminal(&report::analyze(&report), STYLE);
    }),
    ("diff", |snapshot| {
        let file = File { snapshot, path: "a" };
        let options = DiffOptions { device: None, at: ComparedMoment::Peak, top: 5 };
        terminal(&report::diff(&diff(file, file, options)), STYLE);
    }),
    ("timeline", |snapshot| {
        terminal(&report::timeline(&timeline(snapshot, "a", Scope::default(), 64)), STYLE);
    }),
    ("whatif", |snapshot| {
        let study = Study::new(snapshot, Scope::default());
        let options = ["expandable_segments:True".to_owned()];
        let asked = WhatIfOptions { options: &options, ..WhatIfOptions::default() };
        terminal(&report::whatif(&compare_settings(&study, "a", asked, &|_, _| ()).unwrap()), STYLE);
    }),
    // Most requests fail.
    ("whatif on a small device", |snapshot| {
        let study = Study::new(snapshot, Scope::default());
        let options = ["max_split_size_mb:64".to_owned()];
        let asked = WhatIfOptions { options: &options, capacity: Some(100 * MIB), ..WhatIfOptions::default() };
        terminal(&report::whatif(&compare_settings(&study, "a", asked, &|_, _| ()).unwrap()), STYLE);
    }),
    ("check", |snapshot| {
        let config = Config::parse("max-ooms = 0\nmax-gap-ratio = 0.1\n").unwrap();
        let gate = Gate {
            entry: None,
            is_measured: false,
            rules: &config.limits,
            flags: &Limits::default(),
            is_only: true,
            allow_missing: &AllowMissing::new(),
            device: None,
            source: &|_| None,
        };
        judge(snapshot, "a", "a", &gate);
    }),
];

#[test]
fn devices() {
    grows_in_proportion("devices", &|n| apart(n / 10, |at| [at, 0, 0]));
}

#[test]
fn streams() {
    grows_in_proportion("streams", &|n| apart(n, |at| [0, at, 0]));
}

#[test]
fn pools() {
    grows_in_proportion("pools", &|n| apart(n, |at| [0, 0, at]));
}

#[test]
fn consecutive_failures() {
    grows_in_proportion("failures", &failures);
}

#[test]
fn failures_after_each_allocation() {
    grows_in_proportion("allocations with a failure", &failure_after_each_allocation);
}

#[test]
fn a_half_unmapped_range() {
    grows_in_proportion("granules", &half_unmapped);
}

#[test]
fn segments_that_grow() {
    grows_in_proportion("cached segments", &growing_segments);
}

#[test]
fn small_blocks() {
    grows_in_proportion("small blocks", &small);
}

#[test]
fn annotations_within_each_other() {
    grows_in_proportion("annotations", &nested_annotations);
}
