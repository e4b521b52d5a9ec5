//! The work of the allocator's model grows in proportion to the trace, whatever its free blocks look like.

use super::linear::{BASE, MIB, entry, file_with_settings, grows_in_proportion, segment};
use oomscope::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const GRANULE: u64 = 20 * MIB;

fn addr(granule: u64) -> u64 {
    BASE + granule * GRANULE
}

/// A trace of PyTorch 2.13 or newer, where blocks of equal size are taken by the age of their segment.
fn file(segments: Vec<Value>, mut trace: Vec<Value>, is_expandable: bool) -> Snapshot {
    for entry in &mut trace {
        entry["pool_id"] = json!([0, 0]);
    }
    let mut settings = json!({"PYTORCH_CUDA_ALLOC_CONF": "", "max_round_threshold": 0});
    if is_expandable {
        settings["PYTORCH_CUDA_ALLOC_CONF"] = json!("expandable_segments:True");
        settings["expandable_segments"] = json!(true);
    }
    file_with_settings(segments, trace, settings)
}

fn allocated(at: u64) -> Value {
    entry("alloc", addr(at), GRANULE, 0, 0)
}

fn freed(at: u64) -> [Value; 2] {
    ["free_requested", "free_completed"].map(|action| entry(action, addr(at), GRANULE, 0, 0))
}

fn cached(at: u64) -> Value {
    let mut segment = segment(0, addr(at), 0, 0, &[GRANULE]);
    segment["blocks"][0]["state"] = json!("inactive");
    segment
}

/// Free segments from before the trace, the last of which is the oldest.
fn youngest_first(n: u64) -> Snapshot {
    let segments = (0..n).map(|at| segment(0, addr(at), 0, 0, &[GRANULE]));
    file(segments.collect(), (0..n).rev().map(allocated).collect(), false)
}

/// Live segments from before the trace. Each that is freed is older than those before.
fn each_older_than_the_last(n: u64) -> Snapshot {
    let mut trace = vec![allocated(0)];
    trace.extend(freed(0));
    for at in 1..n {
        trace.extend(freed(at));
        trace.push(allocated(at));
        trace.extend(freed(at));
    }
    file((0..n).map(cached).collect(), trace, false)
}

/// Segments from before the trace, two of which are released at a time, the second first.
fn released_in_pairs(n: u64) -> Snapshot {
    let pair = |at: u64| {
        let frees = [freed(at), freed(at + 1)].concat();
        frees.into_iter().chain([at + 1, at].map(|at| entry("segment_free", addr(at), GRANULE, 0, 0)))
    };
    file(Vec::new(), (0..n).step_by(2).flat_map(pair).collect(), false)
}

/// An expandable segment of `2 * holes` granules, every other one of which is unmapped, and then a program.
struct Holes {
    trace: Vec<Value>,
    /// Granules: where a block begins, and how long it is.
    live: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, u64>,
    end: u64,
}

impl Holes {
    fn new(holes: u64) -> Self {
        let mut made = Self { trace: Vec::new(), live: BTreeMap::new(), mapped: BTreeMap::new(), end: 0 };
        (0..2 * holes).for_each(|_| made.grow(1));
        let even = || (0..2 * holes).step_by(2);
        even().for_each(|at| made.free(at));
        for at in even() {
            made.trace.push(entry("segment_unmap", addr(at), GRANULE, 0, 0));
            made.mapped.remove(&at);
        }
        made
    }

    /// A request that fits into no hole.
    fn grow(&mut self, granules: u64) {
        let grown = ["segment_map", "alloc"].map(|action| entry(action, addr(self.end), granules * GRANULE, 0, 0));
        self.trace.extend(grown);
        self.live.insert(self.end, granules);
        self.mapped.insert(self.end, granules);
        self.end += granules;
    }

    fn free(&mut self, at: u64) {
        self.trace.extend(freed(at));
        self.live.remove(&at);
    }

    fn snapshot(self) -> Snapshot {
        let segment_at = |(at, granules): (&u64, &u64)| {
            let mut segment = segment(0, addr(*at), 0, 0, &[granules * GRANULE]);
            segment["is_expandable"] = json!(true);
            if !self.live.contains_key(at) {
                segment["blocks"][0]["state"] = json!("inactive");
            }
            segment
        };
        file(self.mapped.iter().map(segment_at).collect(), self.trace, true)
    }
}

/// A block between two low holes is freed, and a request is larger than the three together.
fn low_frees_and_large_requests(n: u64) -> Snapshot {
    let mut holes = Holes::new(n);
    for at in (1..2 * n - 2).step_by(4) {
        holes.free(at);
        holes.grow(5);
    }
    holes.snapshot()
}

fn alternating_sizes(n: u64) -> Snapshot {
    let mut holes = Holes::new(n);
    (0..n).for_each(|at| holes.grow(if at % 2 == 0 { 5 } else { 2 }));
    holes.snapshot()
}

/// One run of holes and free blocks that grows down from the end, and requests that are too large for it.
fn a_long_run(n: u64) -> Snapshot {
    let mut holes = Holes::new(n);
    for at in (1..2 * n - 2).rev().step_by(2) {
        holes.free(at);
        if at % 8 == 1 {
            holes.grow(2 * n + 5);
        }
    }
    holes.snapshot()
}

#[test]
fn equal_segments_from_before_the_trace() {
    grows_in_proportion("segments", &youngest_first);
    grows_in_proportion("segments that are freed", &each_older_than_the_last);
}

#[test]
fn releases_of_segments_from_before_the_trace() {
    grows_in_proportion("released segments", &released_in_pairs);
}

#[test]
fn holes_of_expandable_segments() {
    grows_in_proportion("low frees", &low_frees_and_large_requests);
    grows_in_proportion("sizes", &alternating_sizes);
}

#[test]
fn a_long_run_of_holes() {
    grows_in_proportion("parts of a run", &a_long_run);
}
