//! Ranges that the program or PyTorch named: `external_annotations` (such as `Optimizer.step` and profiler steps), and
//! consecutive entries with the same `user_metadata`.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::base::ids::SymbolId;
use crate::base::units::escape_name;
use crate::snapshot::{Action, Device};
use crate::stacks::phases::Clock;

/// Maximum number of names, in order of appearance.
const MAX_NAMES: usize = 64;
/// Maximum number of spans of one name that are kept.
const MAX_SPANS: usize = 100;

/// The spans of one name.
#[derive(Debug)]
pub struct NamedRange {
    /// The name, as recorded.
    pub name: String,
    /// `annotation`: matched to entries by time; `user_metadata`: recorded with each entry.
    pub source: &'static str,
    /// Number of entries in all spans.
    pub entries: usize,
    /// The first 100 spans; one without an entry is empty, before the next entry.
    pub spans: Vec<Range<usize>>,
}

/// A span before it is cut to the window.
pub struct SpanEntries {
    pub name: SymbolId,
    source: &'static str,
    pub entries: Range<usize>,
    /// Start and end, in microseconds since the epoch.
    pub times: [Option<u64>; 2],
}

/// The named ranges of `device` that overlap `window`: at most 64 names, those with most entries first.
pub fn named_ranges(device: Device<'_>, window: &Range<usize>) -> Vec<NamedRange> {
    let mut names: Vec<NamedRange> = Vec::new();
    let mut rows = FxHashMap::default();
    let mut add = |found: SpanEntries| {
        // The ring drops entries but no annotations: many spans end before the first entry.
        if found.entries.end <= window.start || found.entries.start >= window.end {
            return;
        }
        let entries = found.entries.start.max(window.start)..found.entries.end.min(window.end);
        let key = (found.name, found.source);
        if names.len() == MAX_NAMES && !rows.contains_key(&key) {
            return;
        }
        let row = *rows.entry(key).or_insert_with(|| {
            let name = escape_name(device.snapshot().text(found.name));
            names.push(NamedRange { name, source: found.source, entries: 0, spans: Vec::new() });
            names.len() - 1
        });
        let named = &mut names[row];
        named.entries += entries.len();
        if named.spans.len() < MAX_SPANS {
            named.spans.push(entries);
        }
    };
    annotation_spans(device).into_iter().for_each(&mut add);
    metadata_spans(device, window, &mut add);
    names.sort_by(|a, b| b.entries.cmp(&a.entries).then_with(|| a.name.cmp(&b.name)));
    names
}

/// The annotations of `device` as spans. An end without a start makes a span from the first entry, a start without an
/// end a span to the last entry.
pub fn annotation_spans(device: Device<'_>) -> Vec<SpanEntries> {
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
pub fn metadata_spans(device: Device<'_>, window: &Range<usize>, mut add: impl FnMut(SpanEntries)) {
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
