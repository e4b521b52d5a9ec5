//! What happened in the course of a recording: failures, marks, named ranges, phases.

use std::cmp::Reverse;

use super::allocations::Moment;
use super::header::{Failure, Mark, Range};
use super::names::{Names, place_in};
use super::shown::Shown;
use super::stacks::StackTable;
use crate::analysis::DeviceReport;
use crate::base::ids::to_u32;
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::stacks::phases::{Phase, Phases};
use crate::study::DeviceStudy;
use crate::study::timeline;

/// Marks that a page has; beyond it those of most bytes.
const MARKS: usize = 5000;

/// The moment after entry `event`, as the page counts.
fn after(shown: Shown, event: u64) -> Option<Moment> {
    let event = usize::try_from(event).ok()?;
    shown.moment(to_u32(event).saturating_add(1))
}

/// The failures of the analysis.
pub(super) fn failures(
    device: DeviceStudy<'_, '_>,
    report: &DeviceReport,
    shown: Shown,
    stacks: &mut StackTable<'_, '_>,
    names: &mut Names,
) -> Vec<Failure> {
    let told = report.ooms.iter().enumerate().filter_map(|(index, oom)| {
        let entry = usize::try_from(oom.event).ok()?;
        Some(Failure {
            moment: after(shown, oom.event)?,
            requested_bytes: oom.requested_bytes,
            segment_bytes: oom.segment_bytes,
            stream: names.stream(oom.stream),
            pool: oom.pool_id.map(|id| names.pool_of(id)),
            node: stacks.of(device.device().entry(entry).extended_stack).0,
            index,
        })
    });
    told.collect()
}

/// Memory that went back to the device, and snapshots.
pub(super) fn marks(device: DeviceStudy<'_, '_>, shown: Shown) -> Vec<Mark> {
    let Some(over_time) = device.history() else { return Vec::new() };
    let is_in = |event: &usize| device.window().contains(event);
    let given = device_frees(device.device(), over_time.outcome.initial_totals.reserved);
    let given = given.filter(|given| is_in(&given.entry_index)).filter_map(|given| {
        let kind = if given.is_for_request { "reclaim" } else { "empty-cache" };
        Some(Mark { moment: after(shown, given.entry_index as u64)?, kind, bytes: given.bytes })
    });
    let taken =
        device.device().indexes_with_action(Action::Snapshot).filter(is_in).filter_map(|event| {
            Some(Mark { moment: after(shown, event as u64)?, kind: "snapshot", bytes: 0 })
        });
    let mut marks: Vec<Mark> = given.chain(taken).collect();
    if marks.len() > MARKS {
        marks.sort_by_key(|mark| (Reverse(mark.bytes), mark.moment));
        marks.truncate(MARKS);
    }
    marks.sort_by_key(|mark| mark.moment);
    marks
}

/// Named ranges, as `oomscope timeline` lists them.
pub(super) fn ranges(device: DeviceStudy<'_, '_>, shown: Shown) -> Vec<Range> {
    let window = device.window();
    let named = timeline::named_ranges(device.device(), &window, |_| 0).names;
    let mut ranges: Vec<Range> = named
        .iter()
        .flat_map(|range| {
            range.spans.iter().filter_map(|span| {
                let start = after(shown, span.first_event)?.saturating_sub(1);
                let events = u32::try_from(span.events).ok()?;
                let end = start.saturating_add(events).min(shown.entries);
                Some(Range { start, end, name: range.name.clone() })
            })
        })
        .collect();
    ranges.sort_by_key(|range| (range.start, Reverse(range.end)));
    ranges
}

/// From which moment on entries are of which phase.
pub(super) fn phase_runs(phases: &Phases, shown: Shown) -> Vec<(Moment, usize)> {
    let mut runs: Vec<(Moment, usize)> = Vec::new();
    for run in phases.runs() {
        let Some(moment) = shown.moment(run.start) else { break };
        // Of those before the first entry that is shown, the last.
        if runs.last().is_some_and(|last| last.0 == moment) {
            runs.pop();
        }
        runs.push((moment, place_in(Phase::ALL, run.phase)));
    }
    runs
}

/// The moments at which training steps come to their end.
pub(super) fn steps(phases: &Phases, shown: Shown) -> Vec<Moment> {
    let ends = phases.step_ends().iter().filter(|end| **end > shown.first);
    ends.filter_map(|end| shown.moment(*end)).collect()
}
