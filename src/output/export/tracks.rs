//! One device over time, for viewers of traces: counters, slices and failed requests.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

use super::recording::{DeviceRecording, is_live};
use crate::analysis::timeline;
use crate::base::ids::{StackId, SymbolId, to_u32};
use crate::base::units::escape_name;
use crate::snapshot::Action;
use crate::study::attribution::Category;
use crate::study::lifetimes::{AllocationLifetime, EntryCount};

/// A counter in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    Allocated,
    Reserved,
    Category(Category),
}

/// A row of slices. Slices of one lane are nested or apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    Steps,
    Phases,
    /// A row of annotations; overlapping ones take further rows.
    Annotations(usize),
    /// Runs of entries with the same text of `_set_memory_metadata`.
    Metadata,
    /// Texts that `_annotate_tensor` gave to single allocations: slices without a duration.
    Tensors,
}

/// A failed request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) entry: usize,
    pub(super) time_us: u64,
    pub(super) requested_bytes: u64,
    pub(super) device_free_bytes: u64,
    pub(super) stack: StackId,
}

/// A part of the recording with a name.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) lane: Lane,
    /// In microseconds.
    pub(super) time_us: Range<u64>,
    pub(super) name: String,
    /// Bytes of the allocation that it names.
    pub(super) bytes: Option<u64>,
}

impl Counter {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Category(category) => category.word(),
        }
    }
}

impl Lane {
    pub(super) fn label(self) -> String {
        match self {
            Self::Steps => "training steps".to_owned(),
            Self::Phases => "phases".to_owned(),
            Self::Annotations(0) => "annotations".to_owned(),
            Self::Annotations(more) => format!("annotations {}", more + 1),
            Self::Metadata => "memory metadata".to_owned(),
            Self::Tensors => "annotated tensors".to_owned(),
        }
    }
}

impl DeviceRecording<'_, '_> {
    /// The counters that ever have bytes in the window.
    pub(super) fn counters_in_use(&self) -> Vec<Counter> {
        let used: BTreeSet<Category> = self.allocations().map(|one| one.category).collect();
        let categories = Category::ALL.iter().copied().filter(|category| used.contains(category));
        [Counter::Allocated, Counter::Reserved].into_iter().chain(categories.map(Counter::Category)).collect()
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
    pub(super) fn counters(&self, mut change: impl FnMut(Counter, u64, u64) -> io::Result<()>) -> io::Result<()> {
        let start = self.window.start;
        let mut by_category = CategoryTotals::new(self, start);
        let mut last = self.totals_at(start);
        let first_us = self.time_us(start);
        change(Counter::Allocated, first_us, last.allocated)?;
        change(Counter::Reserved, first_us, last.reserved)?;
        for (category, bytes) in by_category.at_start() {
            change(Counter::Category(category), first_us, bytes)?;
        }
        for entry in self.window.clone() {
            let now = self.totals_at(entry + 1);
            if now.allocated != last.allocated {
                change(Counter::Allocated, self.time_us(entry), now.allocated)?;
            }
            if now.reserved != last.reserved {
                change(Counter::Reserved, self.time_us(entry), now.reserved)?;
            }
            last = now;
            by_category.advance(entry + 1, |category, bytes| {
                change(Counter::Category(category), self.time_us(entry), bytes)
            })?;
        }
        Ok(())
    }

    /// Steps, phases, annotations and texts of the program within the window, by lane and start.
    pub(super) fn slices(&self) -> Vec<Slice> {
        let mut slices = Vec::new();
        if self.window.is_empty() {
            return slices;
        }
        let phases = self.device.phases();
        for step in 0.. {
            let Some(entries) = phases.step_entries(step) else { break };
            slices.extend(self.slice_of(Lane::Steps, entries, || format!("step {step}")));
        }
        let runs = phases.runs();
        let ends = runs.iter().skip(1).map(|run| run.start as usize).chain([self.window.end]);
        for (run, end) in runs.iter().zip(ends) {
            let entries = run.start as usize..end;
            slices.extend(self.slice_of(Lane::Phases, entries, || run.phase.word().to_owned()));
        }
        slices.extend(self.annotations());
        timeline::metadata_spans(self.device.device(), &self.window, |span| {
            slices.extend(self.slice_of(Lane::Metadata, span.entries, || self.text(span.name)));
        });
        slices.extend(self.annotated_tensors());
        slices
    }

    /// `entries` within the window; `None` if there are none.
    fn slice_of(&self, lane: Lane, entries: Range<usize>, name: impl Fn() -> String) -> Option<Slice> {
        let [start, end] = [entries.start, entries.end].map(|entry| entry.clamp(self.window.start, self.window.end));
        let time_us = self.time_us(start)..self.time_us(end);
        (start < end).then(|| Slice { lane, time_us, name: name(), bytes: None })
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
            Some(Slice {
                lane: Lane::Tensors,
                time_us: time_us..time_us,
                name: self.text(text?),
                bytes: Some(entry.size),
            })
        })
    }

    fn annotations(&self) -> Vec<Slice> {
        let window = self.time_us(self.window.start)..self.time_us(self.window.end);
        let spans = timeline::annotation_spans(self.device.device()).into_iter().filter_map(|span| {
            let start = span.times[0].unwrap_or(window.start).max(window.start);
            let end = span.times[1].unwrap_or(window.end).min(window.end);
            (start <= end).then_some((start, end, span.name))
        });
        let mut spans: Vec<(u64, u64, SymbolId)> = spans.collect();
        spans.sort_by_key(|(start, end, _)| (*start, Reverse(*end)));
        let mut lanes: Vec<Vec<u64>> = Vec::new();
        let slices = spans.into_iter().map(|(start, end, name)| {
            let lane = Lane::Annotations(lane_for(&mut lanes, start, end));
            Slice { lane, time_us: start..end, name: self.text(name), bytes: None }
        });
        let mut slices: Vec<Slice> = slices.collect();
        slices.sort_by_key(|slice| slice.lane); // stable
        slices
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = Failure> {
        self.device.failed_requests().map(|index| {
            let entry = self.device.device().entry(index);
            Failure {
                entry: index,
                time_us: self.time_us(index),
                requested_bytes: entry.size,
                device_free_bytes: entry.addr,
                stack: entry.extended_stack,
            }
        })
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

/// Allocated bytes by category, entry by entry.
struct CategoryTotals<'r> {
    allocations: &'r [AllocationLifetime],
    /// In the order of [`Category::ALL`].
    totals: Vec<u64>,
    /// The next allocation that starts.
    next_start: usize,
    /// Numbers of entries after which allocations end, with their rows, ascending.
    ends: Peekable<IntoIter<(EntryCount, usize)>>,
}

impl<'r> CategoryTotals<'r> {
    /// The totals after `applied` entries.
    fn new(recording: &'r DeviceRecording<'_, '_>, applied: usize) -> Self {
        let allocations = &recording.lives.allocations[..];
        let next_start = allocations.partition_point(|one| one.start as usize <= applied);
        let ends = allocations.iter().enumerate().filter_map(|(row, one)| Some((one.freed_at?, row)));
        let mut ends: Vec<(EntryCount, usize)> = ends.filter(|(end, _)| *end as usize > applied).collect();
        ends.sort_unstable();
        let mut totals = vec![0; Category::ALL.len()];
        for one in allocations[..next_start].iter().filter(|one| is_live(one, to_u32(applied))) {
            add(&mut totals[row_of(one.category)], one.bytes);
        }
        Self { allocations, totals, next_start, ends: ends.into_iter().peekable() }
    }

    /// The categories with memory.
    fn at_start(&self) -> Vec<(Category, u64)> {
        let all = Category::ALL.iter().copied().zip(self.totals.iter().copied());
        all.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Goes on to `applied` entries; calls `change` for each category that is then different.
    fn advance(&mut self, applied: usize, mut change: impl FnMut(Category, u64) -> io::Result<()>) -> io::Result<()> {
        let mut before: Vec<(Category, u64)> = Vec::new();
        let mut touched = |category: Category, bytes: u64| {
            if !before.iter().any(|(known, _)| *known == category) {
                before.push((category, bytes));
            }
        };
        while let Some((_, row)) = self.ends.next_if(|(end, _)| *end as usize <= applied) {
            let one = self.allocations[row];
            let total = &mut self.totals[row_of(one.category)];
            touched(one.category, *total);
            *total = total.saturating_sub(one.bytes);
        }
        while let Some(one) = self.allocations.get(self.next_start).filter(|one| one.start as usize <= applied) {
            let total = &mut self.totals[row_of(one.category)];
            touched(one.category, *total);
            add(total, one.bytes);
            self.next_start += 1;
        }
        for (category, bytes) in before {
            let now = self.totals[row_of(category)];
            if now != bytes {
                change(category, now)?;
            }
        }
        Ok(())
    }
}

fn row_of(category: Category) -> usize {
    Category::ALL.iter().position(|one| *one == category).unwrap_or_default() // the list has every category
}

fn add(total: &mut u64, bytes: u64) {
    *total = total.saturating_add(bytes);
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
