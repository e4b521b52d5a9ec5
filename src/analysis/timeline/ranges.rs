//! Ranges that the program or PyTorch named: `external_annotations` (such as `Optimizer.step` and profiler steps), and
//! consecutive entries with the same `user_metadata`.

use std::ops::Range;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use crate::base::ids::SymbolId;
use crate::snapshot::{Action, Device};

/// Maximum number of names, in order of appearance.
const MAX_NAMES: usize = 64;
/// Maximum number of spans of one name.
const MAX_SPANS: usize = 100;

/// A span of a named range.
pub(crate) struct NamedSpan {
    pub(crate) name: SymbolId,
    /// `annotation`: matched to entries by time; `user_metadata`: recorded with each entry.
    pub(crate) source: &'static str,
    /// If it has none, the start is the next entry.
    pub(crate) entries: Range<usize>,
    /// Start and end, in microseconds since the epoch.
    pub(crate) times: [Option<u64>; 2],
}

/// The spans of `device` that overlap `window`, cut to it: the first 100 of each of the first 64 names.
pub(crate) fn named_spans(device: Device<'_>, window: &Range<usize>) -> Vec<NamedSpan> {
    let mut spans = Vec::new();
    let mut count_by_name: FxHashMap<(SymbolId, &str), usize> = FxHashMap::default();
    for span in annotation_spans(device).into_iter().chain(metadata_spans(device, window)) {
        let name = (span.name, span.source);
        // The ring drops entries but no annotations: many spans end before the first entry.
        let is_outside = span.entries.end <= window.start || span.entries.start >= window.end;
        if is_outside || count_by_name.len() == MAX_NAMES && !count_by_name.contains_key(&name) {
            continue;
        }
        let count = count_by_name.entry(name).or_default();
        *count += 1;
        if *count <= MAX_SPANS {
            let entries = span.entries.start.max(window.start)..span.entries.end.min(window.end);
            spans.push(NamedSpan { entries, ..span });
        }
    }
    spans
}

/// The annotations of `device` as spans. An end without a start makes a span from the first entry, a start without an
/// end a span to the last entry.
pub(crate) fn annotation_spans(device: Device<'_>) -> Vec<NamedSpan> {
    if device.time_us(0).is_none() {
        return Vec::new();
    }
    let mut open: FxHashMap<SymbolId, Vec<u64>> = FxHashMap::default();
    let mut spans = Vec::new();
    for annotation in device.snapshot().annotations.iter().filter(|a| a.device == device.id()) {
        let open_starts = open.entry(annotation.name).or_default();
        if annotation.is_start {
            open_starts.push(annotation.time_us);
        } else {
            spans.push((annotation.name, [open_starts.pop(), Some(annotation.time_us)]));
        }
    }
    let open = open.into_iter().flat_map(|(name, open_starts)| open_starts.into_iter().map(move |b| (name, b)));
    spans.extend(open.sorted_unstable().map(|(name, start)| (name, [Some(start), None])));
    let spans = spans.into_iter().map(|(name, times)| {
        let from = times[0].map_or(0, |start| device.first_entry_at(0, start));
        let to = times[1].map_or(device.len(), |end| device.first_entry_at(0, end.saturating_add(1)));
        NamedSpan { name, source: "annotation", entries: from..to.max(from), times }
    });
    spans.sorted_by_key(|span| (span.entries.start, span.entries.end)).collect()
}

/// The spans of consecutive entries in `window` with the same `user_metadata`.
pub(crate) fn metadata_spans<'a>(
    device: Device<'a>,
    window: &Range<usize>,
) -> impl Iterator<Item = NamedSpan> + use<'a> {
    // Entries that annotate a block carry metadata of the block.
    let entries = window.clone().filter(move |index| device.action(*index) != Some(Action::Other));
    let labelled = entries.map(move |index| {
        let label = device.entry(index).user_metadata.filter(|label| !device.snapshot().text(*label).is_empty())?;
        Some((label, index..index + 1))
    });
    let joined = labelled.coalesce(|before, next| match (before, next) {
        (Some((name, before)), Some((label, next))) if name == label => Ok(Some((name, before.start..next.end))),
        different => Err(different),
    });
    joined.flatten().map(move |(name, entries)| {
        let times = [entries.start, entries.end - 1].map(|index| device.time_us(index));
        NamedSpan { name, source: "user_metadata", entries, times }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::snapshot::Snapshot;

    /// A trace of a segment, and then of an allocation each millisecond, `labels` their metadata, with annotations.
    fn labelled(labels: &[&str], annotations: &Value) -> Snapshot {
        let mut trace =
            vec![json!({"action": "segment_alloc", "addr": 0x7000_0000, "size": 100 << 20, "time_us": 999})];
        trace.extend(labels.iter().zip(0u64..).map(|(label, i)| {
            let (addr, time_us) = (0x7000_0000 + (i << 21), 1000 * (i + 1));
            json!({"action": "alloc", "addr": addr, "size": 1 << 21, "time_us": time_us, "user_metadata": label})
        }));
        let file = json!({"segments": [], "device_traces": [trace], "external_annotations": annotations});
        Snapshot::read(file.to_string().as_bytes(), &|_| {}).unwrap()
    }

    /// Name, source, entries and times.
    type Span<'s> = (&'s str, &'s str, Range<usize>, [Option<u64>; 2]);

    fn spans(snapshot: &Snapshot, window: Range<usize>) -> Vec<Span<'_>> {
        let spans = named_spans(snapshot.device(0), &window).into_iter();
        spans.map(|span| (snapshot.text(span.name), span.source, span.entries, span.times)).collect()
    }

    #[test]
    fn ranges_without_start_or_end_are_shown() {
        let annotations = [
            ("lost", "END", 0, 2000),
            ("outer", "START", 0, 2500),
            ("outer", "START", 0, 3500),
            ("outer", "END", 0, 4500),
            ("outer", "END", 0, 5500),
            ("open", "START", 0, 5000),
            ("brief", "START", 0, 2100),
            ("brief", "END", 0, 2200),
            ("elsewhere", "START", 1, 1),
        ];
        let annotations = annotations.map(
            |(name, stage, device, time)| json!({"name": name, "stage": stage, "device": device, "time_us": time}),
        );
        let snapshot = labelled(&["", "a", "a", "b", "", "b"], &json!(annotations));
        // Entry 0 is the segment, entry n was recorded at n milliseconds.
        assert_eq!(
            spans(&snapshot, 0..7),
            [
                ("lost", "annotation", 0..3, [None, Some(2000)]),
                ("brief", "annotation", 3..3, [Some(2100), Some(2200)]),
                ("outer", "annotation", 3..6, [Some(2500), Some(5500)]),
                ("outer", "annotation", 4..5, [Some(3500), Some(4500)]),
                ("open", "annotation", 5..7, [Some(5000), None]),
                ("a", "user_metadata", 2..4, [Some(2000), Some(3000)]),
                ("b", "user_metadata", 4..5, [Some(4000), Some(4000)]),
                ("b", "user_metadata", 6..7, [Some(6000), Some(6000)]),
            ]
        );
        let part = spans(&snapshot, 4..6);
        let part: Vec<_> = part.iter().map(|(name, _, entries, _)| (*name, entries.clone())).collect();
        assert_eq!(part, [("outer", 4..6), ("outer", 4..5), ("open", 5..6), ("b", 4..5)]);
    }

    #[test]
    fn names_and_spans_of_each_are_limited() {
        let names: Vec<String> = (0..=MAX_NAMES).map(|name| name.to_string()).collect();
        let repeated = (0..=MAX_SPANS).flat_map(|_| ["0", ""]);
        let labels: Vec<&str> = names.iter().map(String::as_str).chain(repeated).collect();
        let snapshot = labelled(&labels, &json!([]));
        let spans = spans(&snapshot, 0..labels.len());
        let counts = ["0", "63", "64"].map(|name| spans.iter().filter(|span| span.0 == name).count());
        assert_eq!(counts, [MAX_SPANS, 1, 0]);
        assert_eq!(spans.len(), MAX_NAMES - 1 + MAX_SPANS);
    }
}
