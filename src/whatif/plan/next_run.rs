//! Which run confirms or corrects most.

use super::cell::PlanChange;
use super::plan_run::PlanRun;
use super::report::{PlanGpu, PlanReport};
use crate::whatif::fit::FitCertainty;

/// Maximum number of runs for a GPU: one prediction, then corrections.
const MAX_RUNS_AS_IS: usize = 3;
/// Most runs of one GPU with expandable segments.
const MAX_RUNS_EXPANDABLE: usize = 2;

/// A run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRun {
    /// Name of the GPU.
    pub gpu: &'static str,
    /// Whether to set `expandable_segments:True`.
    pub expandable_segments: bool,
    /// The size.
    pub size: u64,
}

impl PlanReport {
    /// The run to make next: first one for each GPU as it is, then corrections, then expandable segments where more
    /// should fit. `None` if nothing is left to confirm.
    pub fn next_run(&self) -> Option<NextRun> {
        let as_is = |max_runs| self.gpus.iter().find_map(move |gpu| self.run_of(gpu, PlanChange::AsIs, max_runs));
        let expandable = || {
            let gains = |gpu: &&PlanGpu| {
                let [as_is, expandable] =
                    [PlanChange::AsIs, PlanChange::ExpandableSegments].map(|change| gpu.cell(change));
                expandable.and_then(|cell| cell.size) > as_is.and_then(|cell| cell.size)
            };
            let mut gpus = self.gpus.iter().filter(gains);
            gpus.find_map(|gpu| self.run_of(gpu, PlanChange::ExpandableSegments, MAX_RUNS_EXPANDABLE))
        };
        as_is(1).or_else(|| as_is(MAX_RUNS_AS_IS)).or_else(expandable)
    }

    /// The size to record next, on the GPU with most memory: the smallest answer that is at least twice the largest
    /// recorded size. A recording there shows kernels that smaller sizes do not run. `None` if no answer is that far.
    pub fn next_recording(&self) -> Option<u64> {
        let recorded = self.recordings.iter().map(|recording| recording.size).max()?;
        let answers = self.gpus.iter().filter_map(|gpu| gpu.cell(PlanChange::AsIs)?.size);
        answers.filter(|size| *size >= recorded.saturating_mul(2)).min()
    }

    fn run_of(&self, gpu: &PlanGpu, change: PlanChange, max_runs: usize) -> Option<NextRun> {
        let expandable_segments = change == PlanChange::ExpandableSegments;
        let is_own = |run: &&PlanRun| run.gpu == gpu.gpu && run.expandable_segments == expandable_segments;
        let recorded = || self.recordings.iter().map(|recording| recording.size);
        let is_recording = |run: &&PlanRun| {
            recorded().any(|size| size == run.size) || recorded().min().is_some_and(|size| run.size < size)
        };
        let runs = self.runs.iter().filter(is_own);
        let cell = gpu.cell(change)?;
        let size = cell.size.filter(|size| *size > 0 && cell.certainty != FitCertainty::Confirmed)?;
        let is_made = runs.clone().any(|run| run.size == size);
        let made = runs.filter(|run| !is_recording(run)).count();
        (!is_made && made < max_runs).then_some(NextRun { gpu: gpu.gpu, expandable_segments, size })
    }
}
