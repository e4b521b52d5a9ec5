//! Ranges that the program or PyTorch named: `external_annotations` (such as `Optimizer.step` and profiler steps), and
//! consecutive entries with the same `user_metadata`.

use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::ids::SymbolId;
use crate::base::units::escape_name;
use crate::snapshot::{Action, Device};
use crate::stacks::phases::Clock;

/// Maximum number of names, in order of appearance.
const MAX_NAMES: usize = 64;
/// Maximum number of spans of one name that are listed individually.
const MAX_SPANS: usize = 100;

/// Named ranges of a device.
#[derive(Debug, Default, Serialize)]
pub struct NamedRanges {
    /// At most 64 names, by the number of entries in their spans, descending.
    pub names: Vec<NamedRange>,
    /// Number of spans of all other names.
    pub other_spans: u64,
}

/// All spans of one name.
#[derive(Debug, Serialize)]
pub struct NamedRange {
    /// The name, as recorded.
    pub name: String,
    /// `annotation`: matched to entries by time; `user_metadata`: recorded with each entry.
    pub source: &'static str,
    /// Number of spans.
    pub count: u64,
    /// Number of entries in all spans.
    pub events: u64,
    /// The first 100 spans.
    pub spans: Vec<RangeSpan>,
    /// Runs of consecutive buckets that contain entries of any span, each as first and last bucket.
    pub in_buckets: Vec<[u64; 2]>,
}

/// A span of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RangeSpan {
    /// Index of the first entry in the span; if it has none, of the next entry.
    pub first_event: u64,
    /// Number of entries in the span.
    pub events: u64,
    /// Start in microseconds since the epoch; null if it was before the recording or times were not recorded.
    pub start_us: Option<u64>,
    /// End in microseconds since the epoch; null if it was after the recording or times were not recorded.
    pub end_us: Option<u64>,
}

/// A span before it is cut to the window.
pub(crate) struct SpanEntries {
    pub(crate) name: SymbolId,
    source: &'static str,
    pub(crate) entries: Range<usize>,
    /// Start and end, in microseconds since the epoch.
    pub(crate) times: [Option<u64>; 2],
}

/// The named ranges of `device` that overlap `window`. `bucket_of` maps an entry to its bucket.
pub(crate) fn named_ranges(
    device: Device<'_>,
    window: &Range<usize>,
    bucket_of: impl Fn(usize) -> usize,
) -> NamedRanges {
    let snapshot = device.snapshot();
    let mut ranges = NamedRanges::default();
    let mut rows = FxHashMap::default();
    let mut add = |found: SpanEntries| {
        // The ring drops entries but no annotations: many spans end before the first entry.
        if found.entries.end <= window.start || found.entries.start >= window.end {
            return;
        }
        let entries = found.entries.start.max(window.start)..found.entries.end.min(window.end);
        let names = &mut ranges.names;
        let key = (found.name, found.source);
        if names.len() == MAX_NAMES && !rows.contains_key(&key) {
            ranges.other_spans += 1;
            return;
        }
        let row = *rows.entry(key).or_insert_with(|| {
            names.push(NamedRange::new(&escape_name(snapshot.text(found.name)), found.source));
            names.len() - 1
        });
        let span = RangeSpan {
            first_event: entries.start as u64,
            events: entries.len() as u64,
            start_us: found.times[0],
            end_us: found.times[1],
        };
        let ends = [entries.start, entries.end.saturating_sub(1)];
        names[row].add(span, ends.map(|entry| bucket_of(entry.max(window.start)) as u64));
    };
    annotation_spans(device).into_iter().for_each(&mut add);
    metadata_spans(device, window, &mut add);
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
        if self.spans.len() < MAX_SPANS {
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

/// The annotations of `device` as spans. An end without a start makes a span from the first entry, a start without an
/// end a span to the last entry.
pub(crate) fn annotation_spans(device: Device<'_>) -> Vec<SpanEntries> {
    let clock = Clock::new(device);
    if !clock.has_times() {
        return Vec::new();
    }
    let found = |name, start: Option<u64>, end: Option<u64>| {
        let from = start.map_or(0, |start| clock.first_entry_at(0, start));
        let to = end.map_or(device.len(), |end| clock.first_entry_at(0, end.saturating_add(1)));
        SpanEntries { name, source: "annotation", entries: from..to.max(from), times: [start, end] }
    };
    let mut open: FxHashMap<SymbolId, Vec<u64>> = FxHashMap::default();
    let mut spans = Vec::new();
    let annotations = &device.snapshot().annotations;
    for annotation in annotations.iter().filter(|a| a.device == device.id()) {
        let open_starts = open.entry(annotation.name).or_default();
        if annotation.is_start {
            open_starts.push(annotation.time_us);
        } else {
            spans.push(found(annotation.name, open_starts.pop(), Some(annotation.time_us)));
        }
    }
    let open = open.into_iter().flat_map(|(name, open_starts)| open_starts.into_iter().map(move |b| (name, b)));
    let mut open: Vec<_> = open.collect();
    open.sort_unstable();
    spans.extend(open.into_iter().map(|(name, start)| found(name, Some(start), None)));
    spans.sort_by_key(|span| (span.entries.start, span.entries.end));
    spans
}

/// Passes each span of consecutive entries in `window` with the same `user_metadata` to `add`.
pub(crate) fn metadata_spans(device: Device<'_>, window: &Range<usize>, mut add: impl FnMut(SpanEntries)) {
    let mut open: Option<SpanEntries> = None;
    for index in window.clone() {
        let event = device.entry(index);
        // Entries that annotate a block carry metadata of the block.
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
        open = label.map(|name| SpanEntries { name, source: "user_metadata", entries, times: [time; 2] });
    }
    open.into_iter().for_each(add);
}
