//! Training steps and phases within the window, as entry ranges for a chart.

use std::ops::Range;

use super::DeviceStudy;
use crate::stacks::phases::Phase;

/// Longer lists of steps are thinned out: no page has room for more.
const MAX_STEPS: usize = 512;
/// Longer lists of phases are dropped. Several phases may share a column.
const MAX_PHASE_RUNS: usize = 1 << 14;

/// A half-open range of entries, counted from the first entry of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRange<T> {
    /// First entry.
    pub start: u64,
    /// The entry after the last.
    pub end: u64,
    /// The step or the phase.
    pub value: T,
}

/// Steps and phases of a device's trace within the window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Training steps by number; each item covers several if there are too many.
    pub steps: Vec<EntryRange<u32>>,
    /// Phases in order; empty if there are too many.
    pub phases: Vec<EntryRange<Phase>>,
}

impl Activity {
    /// Steps and phases from the stacks and annotations of the trace.
    pub fn from_trace(device: DeviceStudy<'_, '_>) -> Self {
        let (phases, window) = (device.phases(), device.window());
        let steps: Vec<_> = phases.steps.ranges().filter_map(|step| EntryRange::in_window(step, &window)).collect();
        let stride = steps.len().div_ceil(MAX_STEPS).max(1);
        let mut steps: Vec<EntryRange<u32>> = steps.into_iter().step_by(stride).collect();
        for at in 1..steps.len() {
            steps[at - 1].end = steps[at].start;
        }
        let runs = phases.ranges(window.end).filter(|_| phases.runs().len() <= MAX_PHASE_RUNS);
        Self { steps, phases: runs.filter_map(|run| EntryRange::in_window(run, &window)).collect() }
    }
}

impl<T> EntryRange<T> {
    /// The part of `entries` in `window`; `None` if that is empty.
    fn in_window((value, entries): (T, Range<usize>), window: &Range<usize>) -> Option<Self> {
        let [start, end] =
            [entries.start, entries.end].map(|at| (at.clamp(window.start, window.end) - window.start) as u64);
        (start < end).then_some(Self { start, end, value })
    }
}
