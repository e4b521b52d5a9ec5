//! The runs of one GPU under the same settings: they confirm, bound and correct a predicted size.

use super::cell::{PlanChange, PlanRun};
use crate::allocator::device::GpuModel;
use crate::whatif::Sureness;
use crate::whatif::fit::step_below;

pub(super) struct OwnRuns<'r> {
    /// The largest that fits.
    pub(super) fitting: Option<&'r PlanRun>,
    /// The smallest size that fails.
    fails: Option<u64>,
    failures: u32,
}

impl<'r> OwnRuns<'r> {
    pub(super) fn new(runs: &'r [PlanRun], gpu: &GpuModel, change: PlanChange) -> Self {
        let expandable_segments = change == PlanChange::ExpandableSegments;
        let (mut fitting, mut fails, mut failures) = (None::<&PlanRun>, None, 0);
        for run in runs.iter().filter(|run| run.gpu == gpu.name && run.expandable_segments == expandable_segments) {
            if run.fits {
                fitting = Some(fitting.filter(|largest| largest.size > run.size).unwrap_or(run));
            } else {
                fails = Some(fails.map_or(run.size, |size: u64| size.min(run.size)));
                failures += 1;
            }
        }
        Self { fitting, fails, failures }
    }

    /// The largest size by these runs and by a prediction; `None` if every size fits.
    pub(super) fn bound(&self, predicted: Option<u64>) -> Option<u64> {
        let largest_run = self.fitting.map_or(0, |run| run.size);
        let size = match self.fails {
            Some(fails) if predicted.is_none_or(|size| size >= fails) => {
                fails.saturating_sub(step_below(fails, self.failures).max(1))
            }
            _ => predicted?,
        };
        Some(size.max(largest_run))
    }

    /// The run that shows that this size fits.
    pub(super) fn confirming(&self, size: Option<u64>) -> Option<&'r PlanRun> {
        self.fitting.filter(|run| Some(run.size) == size)
    }
}

/// How sure an answer is that this run shows.
pub(super) fn certainty_by(run: &PlanRun) -> Sureness {
    if run.is_certain { Sureness::Confirmed } else { Sureness::Should }
}
