//! What a program was doing in the part of a trace that is looked at, as far as it can be drawn.

use super::DeviceStudy;
use crate::stacks::phases::Phase;

/// More steps than this are too many for any page.
const STEPS: usize = 512;
/// And so are more runs of phases, of which several may share a column.
const RUNS: usize = 1 << 14;

/// Entries in a row, counted from the first that is looked at: up to, not including, `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch<T> {
    /// The first.
    pub first: u64,
    /// The first that is not in it.
    pub next: u64,
    /// What they are.
    pub what: T,
}

/// Steps and phases of a device's trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Course {
    /// Training steps by number; of too many, some.
    pub steps: Vec<Stretch<u32>>,
    /// Phases, one after the other; none where they are too many.
    pub phases: Vec<Stretch<Phase>>,
}

impl Course {
    /// Of the part of `device`'s trace that is looked at.
    pub fn of(device: DeviceStudy<'_, '_>) -> Self {
        let (phases, window) = (device.phases(), device.window());
        let stretch = |first: usize, next: usize| {
            let [first, next] = [first, next].map(|at| at.clamp(window.start, window.end));
            let is_seen = first < next;
            is_seen.then(|| [first, next].map(|at| (at - window.start) as u64))
        };
        let steps = (0..).map_while(|step| phases.step_entries(step).map(|entries| (step, entries)));
        let steps = steps.filter_map(|(what, entries)| {
            let [first, next] = stretch(entries.start, entries.end)?;
            Some(Stretch { first, next, what })
        });
        let mut steps: Vec<Stretch<u32>> = steps.collect();
        let every = steps.len().div_ceil(STEPS).max(1);
        steps = steps.into_iter().step_by(every).collect();
        for at in 1..steps.len() {
            steps[at - 1].next = steps[at].first;
        }
        let runs = Some(phases.runs()).filter(|runs| runs.len() <= RUNS).unwrap_or_default();
        let ends = runs.iter().skip(1).map(|run| run.start as usize).chain([window.end]);
        let seen = runs.iter().zip(ends).filter_map(|(run, end)| {
            let [first, next] = stretch(run.start as usize, end)?;
            Some(Stretch { first, next, what: run.phase })
        });
        Self { steps, phases: seen.collect() }
    }
}
