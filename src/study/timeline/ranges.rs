//! What the program said that it was doing: the ranges of `external_annotations` (PyTorch writes
//! `Optimizer.step`, the profiler its steps), and stretches of one `user_metadata`.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::ids::SymbolId;
use crate::base::units::escape_name;
use crate::snapshot::{Action, Device};
use crate::stacks::phases::Clock;

/// Names that are followed, in order of appearance.
const NAMES: usize = 64;
/// Spans of one name that are listed one by one.
const SPANS: usize = 100;

/// All ranges.
#[derive(Debug, Default, Serialize)]
pub struct NamedRanges {
    /// By name, those that span most entries first; at most 64.
    pub names: Vec<NamedRange>,
    /// Spans of further names.
    pub other_spans: u64,
}

/// Every span of one name.
#[derive(Debug, Serialize)]
pub struct NamedRange {
    /// As recorded.
    pub name: String,
    /// `annotation`, which is matched to the trace by its times, or `user_metadata`, which entries carry.
    pub source: &'static str,
    /// How many spans.
    pub count: u64,
    /// Entries in all of them.
    pub events: u64,
    /// The first 100.
    pub spans: Vec<RangeSpan>,
    /// Runs of buckets with an entry of any span: the first and the last of each.
    pub in_buckets: Vec<[u64; 2]>,
}

/// One stretch of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RangeSpan {
    /// Index of the first entry in it, or of the one that follows where there is none in it.
    pub first_event: u64,
    /// Entries in it.
    pub events: u64,
    /// When it began, in microseconds since the epoch; `None` when that was before the recording, or
    /// without times.
    pub start_us: Option<u64>,
    /// When it ended; `None` when that was after the recording, or without times.
    pub end_us: Option<u64>,
}

/// A span of the trace with its name.
struct FoundSpan {
    name: SymbolId,
    source: &'static str,
    entries: Range<usize>,
    times: [Option<u64>; 2],
}

/// The ranges of `device` that touch `window`; `bucket_of` tells the bucket of an entry.
pub(crate) fn ranges(
    device: Device<'_>,
    window: &Range<usize>,
    bucket_of: impl Fn(usize) -> usize,
) -> NamedRanges {
    let snapshot = device.snapshot();
    let mut ranges = NamedRanges::default();
    let mut rows = FxHashMap::default();
    let mut add = |found: FoundSpan| {
        // Annotations are kept for longer than entries: many end before the first of these.
        if found.entries.end <= window.start || found.entries.start >= window.end {
            return;
        }
        let entries = found.entries.start.max(window.start)..found.entries.end.min(window.end);
        let names = &mut ranges.names;
        let key = (found.name, found.source);
        if names.len() == NAMES && !rows.contains_key(&key) {
            ranges.other_spans += 1;
            return;
        }
        let row = *rows.entry(key).or_insert_with(|| {
            names.push(NamedRange::new(&escape_name(snapshot.text(found.name)), found.source));
            names.len() - 1
        });
        if let Some(range) = names.get_mut(row) {
            let span = RangeSpan {
                first_event: entries.start as u64,
                events: entries.len() as u64,
                start_us: found.times[0],
                end_us: found.times[1],
            };
            let ends = [entries.start, entries.end.saturating_sub(1)];
            range.add(span, ends.map(|entry| bucket_of(entry.max(window.start)) as u64));
        }
    };
    annotated(device).into_iter().for_each(&mut add);
    labelled(device, window, &mut add);
    ranges.names.sort_by(|a, b| b.events.cmp(&a.events).then_with(|| a.name.cmp(&b.name)));
    ranges
}

impl NamedRange {
    fn new(name: &str, source: &'static str) -> Self {
        let (spans, in_buckets) = (Vec::new(), Vec::new());
        Self { name: name.to_owned(), source, count: 0, events: 0, spans, in_buckets }
    }

    fn add(&mut self, span: RangeSpan, [first, last]: [u64; 2]) {
        self.count += 1;
        self.events += span.events;
        if self.spans.len() < SPANS {
            self.spans.push(span);
        }
        if span.events == 0 {
            return;
        }
        match self.in_buckets.last_mut() {
            Some(run) if first <= run[1] + 1 => run[1] = run[1].max(last),
            _ => self.in_buckets.push([first, last]),
        }
    }
}

/// The annotations of `device`, each beginning with its end. One without a beginning lasts from the
/// first entry on, one without an end to the last.
fn annotated(device: Device<'_>) -> Vec<FoundSpan> {
    let clock = Clock::new(device);
    if !clock.has_times() {
        return Vec::new();
    }
    let found = |name, start: Option<u64>, end: Option<u64>| {
        let from = start.map_or(0, |start| clock.first_entry_at(0, start));
        let to = end.map_or(device.len(), |end| clock.first_entry_at(0, end.saturating_add(1)));
        FoundSpan { name, source: "annotation", entries: from..to.max(from), times: [start, end] }
    };
    let mut open: FxHashMap<SymbolId, Vec<u64>> = FxHashMap::default();
    let mut spans = Vec::new();
    let annotations = &device.snapshot().annotations;
    for annotation in annotations.iter().filter(|a| a.device == device.id()) {
        let begun = open.entry(annotation.name).or_default();
        if annotation.is_start {
            begun.push(annotation.time_us);
        } else {
            spans.push(found(annotation.name, begun.pop(), Some(annotation.time_us)));
        }
    }
    let open = open.into_iter().flat_map(|(name, begun)| begun.into_iter().map(move |b| (name, b)));
    let mut open: Vec<_> = open.collect();
    open.sort_unstable();
    spans.extend(open.into_iter().map(|(name, start)| found(name, Some(start), None)));
    spans.sort_by_key(|span| (span.entries.start, span.entries.end));
    spans
}

/// Adds the stretches of entries in `window` with the same `user_metadata`.
fn labelled(device: Device<'_>, window: &Range<usize>, mut add: impl FnMut(FoundSpan)) {
    let mut open: Option<FoundSpan> = None;
    for index in window.clone() {
        let event = device.entry(index);
        // An annotation of one block has metadata of its own.
        if event.action == Action::Other {
            continue;
        }
        let label = event.user_metadata.filter(|label| !device.snapshot().text(*label).is_empty());
        let time = Some(event.time_us).filter(|time| *time != 0);
        if let Some(span) = open.as_mut().filter(|span| label == Some(span.name)) {
            span.entries.end = index + 1;
            span.times[1] = time;
            continue;
        }
        open.take().into_iter().for_each(&mut add);
        let entries = index..index + 1;
        open = label.map(|name| FoundSpan {
            name,
            source: "user_metadata",
            entries,
            times: [time; 2],
        });
    }
    open.into_iter().for_each(add);
}
