//! The entries that a page shows, and their events: marks, named ranges, steps and phases.

use std::cmp::Reverse;

use itertools::Itertools as _;
use serde_json::{Value, json};

use crate::analysis::timeline;
use crate::base::ids::to_u32;
use crate::base::units::escape_name;
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::stacks::phases::Phases;
use crate::study::DeviceStudy;
use crate::study::lifetimes::{EntryCount, MemoryLifetimes, is_live};

/// Maximum number of marks; those with the most bytes are kept.
const MARKS: usize = 5000;

/// The position after entry `event` on the page.
pub(super) fn after(shown: ShownEntries, event: u64) -> Option<EntryCount> {
    shown.to_page(to_u32(usize::try_from(event).ok()?).saturating_add(1))
}

/// Releases of device memory, and snapshots.
pub(super) fn marks(device: DeviceStudy<'_, '_>, shown: ShownEntries) -> Vec<Value> {
    let Some(over_time) = device.history() else { return Vec::new() }; // no trace
    let window = device.window();
    let given = device_frees(device.device(), over_time.outcome.initial_totals.reserved);
    let given = given.filter(|given| window.contains(&given.entry_index)).filter_map(|given| {
        let kind = if given.is_for_request { "reclaim" } else { "empty-cache" };
        Some((after(shown, given.entry_index as u64)?, kind, given.bytes))
    });
    let taken = device.device().indexes_with_action(Action::Snapshot).filter(|event| window.contains(event));
    let taken = taken.filter_map(|event| Some((after(shown, event as u64)?, "snapshot", 0)));
    let mut marks: Vec<(EntryCount, &str, u64)> = given.chain(taken).collect();
    if marks.len() > MARKS {
        marks.sort_by_key(|(moment, _, bytes)| (Reverse(*bytes), *moment));
        marks.truncate(MARKS);
    }
    marks.sort_by_key(|(moment, ..)| *moment);
    marks.into_iter().map(|(moment, kind, bytes)| json!({ "moment": moment, "kind": kind, "bytes": bytes })).collect()
}

/// Ranges that the program or PyTorch named.
pub(super) fn ranges(device: DeviceStudy<'_, '_>, shown: ShownEntries) -> Vec<Value> {
    let spans = timeline::named_spans(device.device(), &device.window());
    let ranges = spans.into_iter().filter_map(|span| {
        let start = after(shown, span.entries.start as u64)?.saturating_sub(1);
        let end = start.saturating_add(to_u32(span.entries.len())).min(shown.entries);
        Some((start, end, escape_name(device.snapshot().text(span.name)), span.source))
    });
    let ranges = ranges.sorted_by_key(|(start, end, ..)| (*start, Reverse(*end)));
    ranges.map(|(from, to, name, source)| json!({ "start": from, "end": to, "name": name, "source": source })).collect()
}

/// The start of each phase, with its index.
pub(super) fn phase_runs(phases: &Phases, shown: ShownEntries) -> Vec<(EntryCount, usize)> {
    let runs = phases.runs().iter().map_while(|run| Some((shown.to_page(run.start)?, run.phase as usize)));
    // All runs before the first entry shown start at 0: keep the last.
    runs.coalesce(|run, next| if run.0 == next.0 { Ok(next) } else { Err((run, next)) }).collect()
}

/// The ends of training steps from the first one shown, whose number comes first.
pub(super) fn steps(phases: &Phases, shown: ShownEntries) -> (usize, Vec<EntryCount>) {
    let ends = phases.steps.ends();
    let first = ends.partition_point(|end| *end <= shown.first);
    (first, ends.iter().skip(first).filter_map(|end| shown.to_page(*end)).collect())
}

/// The range of entries that a page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownEntries {
    /// Number of entries before the range.
    pub(super) first: EntryCount,
    pub(super) entries: EntryCount,
}

impl ShownEntries {
    /// Converts a position in the trace to one on the page, where 0 is before the first entry shown. `None` after the
    /// last.
    pub(super) fn to_page(self, moment: EntryCount) -> Option<EntryCount> {
        let moment = moment.saturating_sub(self.first);
        (moment <= self.entries).then_some(moment)
    }
}

/// Removes lifetimes outside the entries shown and shifts the others.
pub(super) fn retain_shown(lives: &mut MemoryLifetimes, shown: ShownEntries) {
    let window = shown.first as usize..shown.first as usize + shown.entries as usize;
    lives.allocations.retain(|one| is_live(one.start, one.reusable_at(), &window));
    lives.segments.retain(|one| is_live(one.start, one.end, &window));
    for one in &mut lives.allocations {
        one.count_from(shown.first, shown.entries);
    }
    for one in &mut lives.segments {
        one.start = one.start.saturating_sub(shown.first);
        one.end = one.end.and_then(|at| shown.to_page(at));
    }
    // Blocks that were freed before the first entry come first.
    lives.allocations.sort_by_key(|one| (one.start, one.freed_at() != Some(0)));
}
