//! One device over time, for viewers of traces: counters, slices and failed requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use itertools::Itertools as _;

use super::recording::DeviceRecording;
use crate::analysis::timeline;
use crate::base::ids::{StackId, SymbolId};
use crate::base::units::escape_name;
use crate::snapshot::Action;
use crate::study::attribution::Category;

/// A row that a viewer draws, from top to bottom. Slices of one row are nested or apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Track {
    Failures,
    Steps,
    Phases,
    /// Annotations; overlapping ones take further rows.
    Annotations(usize),
    /// Runs of entries with the same text of `_set_memory_metadata`.
    Metadata,
    /// Texts that `_annotate_tensor` gave to single allocations: slices without a duration.
    Tensors,
    /// A counter in bytes, as those after it.
    Allocated,
    Reserved,
    Category(Category),
}

/// A part of the recording with a name.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) track: Track,
    /// In microseconds.
    pub(super) time_us: Range<u64>,
    pub(super) name: String,
    /// Bytes of the allocation that it names.
    pub(super) bytes: Option<u64>,
}

impl Track {
    pub(super) fn label(self) -> String {
        match self {
            Self::Failures => "failed requests".to_owned(),
            Self::Steps => "training steps".to_owned(),
            Self::Phases => "phases".to_owned(),
            Self::Annotations(0) => "annotations".to_owned(),
            Self::Annotations(more) => format!("annotations {}", more + 1),
            Self::Metadata => "memory metadata".to_owned(),
            Self::Tensors => "annotated tensors".to_owned(),
            Self::Allocated => "allocated".to_owned(),
            Self::Reserved => "reserved".to_owned(),
            Self::Category(category) => category.word().to_owned(),
        }
    }
}

impl DeviceRecording<'_, '_> {
    /// The tracks that have something in the window.
    pub(super) fn tracks(&self, slices: &[Slice]) -> BTreeSet<Track> {
        let categories = self.allocations().map(|one| Track::Category(one.category));
        let always = [Track::Failures, Track::Allocated, Track::Reserved];
        slices.iter().map(|slice| slice.track).chain(always).chain(categories).collect()
    }

    /// The source line of a stack.
    pub(super) fn line(&self, stack: StackId) -> String {
        let stacks = self.device.stacks();
        stacks.code_location(stacks.line_id(stack)).label()
    }

    /// The time of an entry. Releases before 2.2 record none: entries are then a microsecond apart.
    pub(super) fn time_us(&self, entry: usize) -> u64 {
        let trace = self.device.device();
        let last = trace.len().saturating_sub(1);
        trace.time_us(entry.min(last)).unwrap_or(entry as u64)
    }

    /// Calls `change` with the value of each counter at the start of the window, and whenever it changes.
    pub(super) fn counters(&self, mut change: impl FnMut(Track, u64, u64) -> io::Result<()>) -> io::Result<()> {
        let mut changes = self.category_changes().into_iter().peekable();
        let mut by_category: BTreeMap<Category, u64> = BTreeMap::new();
        let mut last = [None; 2];
        self.each_totals(|applied, now| {
            let time_us = self.time_us(applied.saturating_sub(1).max(self.window.start));
            for ((track, now), last) in [Track::Allocated, Track::Reserved].into_iter().zip(now).zip(&mut last) {
                if last.replace(now) != Some(now) {
                    change(track, time_us, now)?;
                }
            }
            while let Some((_, category, bytes)) = changes.next_if(|(at, ..)| *at == applied) {
                let total = by_category.entry(category).or_default();
                *total = total.wrapping_add(bytes);
                change(Track::Category(category), time_us, *total)?;
            }
            Ok(())
        })
    }

    /// The bytes that are added to categories after numbers of entries in the window, ascending. The first has all
    /// before it; what goes wraps around.
    fn category_changes(&self) -> Vec<(usize, Category, u64)> {
        let mut changes = Vec::new();
        for one in self.allocations() {
            let bytes = self.lives.kind_of(one).bytes;
            changes.push((self.window.start.max(one.start as usize), one.category, bytes));
            changes.extend(one.freed_at().map(|end| (end as usize, one.category, bytes.wrapping_neg())));
        }
        changes.sort_unstable();
        changes.dedup_by(|next, sum| {
            let is_same = (next.0, next.1) == (sum.0, sum.1);
            sum.2 = sum.2.wrapping_add(if is_same { next.2 } else { 0 });
            is_same
        });
        changes.retain(|(_, _, bytes)| *bytes > 0);
        changes
    }

    /// Steps, phases, annotations and texts of the program within the window, by track and start.
    pub(super) fn slices(&self) -> Vec<Slice> {
        let mut slices = Vec::new();
        if self.window.is_empty() {
            return slices;
        }
        let phases = self.device.phases();
        for (step, entries) in phases.steps.ranges() {
            slices.extend(self.slice_of(Track::Steps, entries, || format!("step {step}")));
        }
        for (phase, entries) in phases.ranges(self.window.end) {
            slices.extend(self.slice_of(Track::Phases, entries, || phase.word().to_owned()));
        }
        slices.extend(self.annotations());
        for span in timeline::metadata_spans(self.device.device(), &self.window) {
            slices.extend(self.slice_of(Track::Metadata, span.entries, || self.text(span.name)));
        }
        slices.extend(self.annotated_tensors());
        slices
    }

    /// `entries` within the window; `None` if there are none.
    fn slice_of(&self, track: Track, entries: Range<usize>, name: impl Fn() -> String) -> Option<Slice> {
        let [start, end] = [entries.start, entries.end].map(|entry| entry.clamp(self.window.start, self.window.end));
        let time_us = self.time_us(start)..self.time_us(end);
        (start < end).then(|| Slice { track, time_us, name: name(), bytes: None })
    }

    fn text(&self, text: SymbolId) -> String {
        escape_name(self.device.snapshot().text(text))
    }

    fn annotated_tensors(&self) -> impl Iterator<Item = Slice> {
        let trace = self.device.device();
        let annotations = self.window.clone().filter(move |index| trace.action(*index) == Some(Action::Other));
        annotations.filter_map(move |index| {
            let entry = trace.entry(index);
            let text =
                entry.user_metadata.filter(|text| entry.addr > 0 && !self.device.snapshot().text(*text).is_empty());
            let time_us = self.time_us(index);
            let (name, bytes) = (self.text(text?), Some(entry.size));
            Some(Slice { track: Track::Tensors, time_us: time_us..time_us, name, bytes })
        })
    }

    fn annotations(&self) -> Vec<Slice> {
        let window = self.time_us(self.window.start)..self.time_us(self.window.end);
        let spans = timeline::annotation_spans(self.device.device()).into_iter().filter_map(|span| {
            let start = span.times[0].unwrap_or(window.start).max(window.start);
            let end = span.times[1].unwrap_or(window.end).min(window.end);
            (start <= end).then_some((start, end, span.name))
        });
        let spans = spans.sorted_by_key(|(start, end, _)| (*start, Reverse(*end)));
        let mut lanes: Vec<Vec<u64>> = Vec::new();
        let slices = spans.map(|(start, end, name)| {
            let track = Track::Annotations(lane_for(&mut lanes, start, end));
            Slice { track, time_us: start..end, name: self.text(name), bytes: None }
        });
        slices.sorted_by_key(|slice| slice.track).collect() // stable
    }
}

/// The first lane in which a slice is apart from the others or within one. `lanes` has the ends of open slices.
fn lane_for(lanes: &mut Vec<Vec<u64>>, start: u64, end: u64) -> usize {
    for (index, open) in lanes.iter_mut().enumerate() {
        while open.last().is_some_and(|last| *last <= start) {
            open.pop();
        }
        if open.last().is_none_or(|last| *last >= end) {
            open.push(end);
            return index;
        }
    }
    lanes.push(vec![end]);
    lanes.len() - 1
}

#[cfg(test)]
mod tests {
    use super::lane_for;

    #[test]
    fn slices_of_a_lane_are_nested_or_apart() {
        let mut lanes = Vec::new();
        let slices = [(0, 100), (10, 20), (20, 40), (30, 120), (50, 60), (130, 140)];
        assert_eq!(slices.map(|(start, end)| lane_for(&mut lanes, start, end)), [0, 0, 0, 1, 0, 0]);
    }
}
