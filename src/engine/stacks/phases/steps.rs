//! Divides a trace into training steps.

use std::ops::Range;

use super::annotations::AnnotatedRanges;
use super::frame_role::Phase;
use crate::base::ids::to_u32;
use crate::base::warning::words;

/// Consecutive entries of one phase, from entry `start` to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseRun {
    pub start: u32,
    pub phase: Phase,
}

words! {
    /// The events that end a training step.
    #[non_exhaustive]
    pub enum StepMarker {
        /// `Optimizer.step` annotations, which PyTorch records since 2.5
        OptimizerStep = "optimizer-step",
        /// Allocations by the optimizer
        OptimizerFrames = "optimizer-frames",
        /// `Optimizer.zero_grad` annotations, which PyTorch records since 2.5
        ZeroGrad = "zero-grad",
        /// Backward passes; with gradient accumulation there are several per optimizer step
        BackwardFrames = "backward-frames",
    }
}

/// The boundaries of training steps.
#[derive(Debug, Default)]
pub struct Steps {
    /// The first entry of the first step.
    first: u32,
    /// For each completed step, the first entry after it.
    ends: Vec<u32>,
    /// Trace length.
    len: usize,
    marker: Option<StepMarker>,
}

impl Steps {
    /// Steps of a trace of `len` entries, by the most reliable marker that occurs often enough.
    pub(super) fn from_runs(runs: &[PhaseRun], annotations: &AnnotatedRanges, len: usize) -> Self {
        let candidates = [
            (StepMarker::OptimizerStep, merge_step_ends(&annotations.step_ends, runs), 1),
            (StepMarker::OptimizerFrames, run_ends(runs, Phase::Optimizer), 2),
            (StepMarker::ZeroGrad, merge_step_ends(&annotations.zero_grad_ends, runs), 2),
            (StepMarker::BackwardFrames, run_ends(runs, Phase::Backward), 1),
        ];
        let found = candidates.into_iter().find(|(_, ends, minimum)| ends.len() >= *minimum);
        let Some((from, ends, _)) = found else { return Self::default() }; // no training steps
        // The first step starts when the model has been built.
        let first_step = runs.partition_point(|run| run.start < ends[0]);
        let built = runs[..first_step].iter().rposition(|run| run.phase == Phase::Init);
        let first = built.and_then(|at| runs.get(at + 1)).map_or(0, |run| run.start);
        Self { first, ends, len, marker: Some(from) }
    }

    /// The training step of `entry`, counted from 0; `None` before the first step, or if the trace shows no steps.
    pub fn step_at(&self, entry: usize) -> Option<u32> {
        let has_begun = self.marker.is_some() && entry >= self.first as usize;
        has_begun.then(|| to_u32(self.ends.partition_point(|end| *end as usize <= entry)))
    }

    /// The entries of `step`, including a last step that did not complete.
    pub fn entries(&self, step: u32) -> Option<Range<usize>> {
        self.marker?;
        let step = step as usize;
        let start = match step.checked_sub(1) {
            None => self.first,
            Some(before) => *self.ends.get(before)?,
        };
        Some(start as usize..self.ends.get(step).map_or(self.len, |end| *end as usize))
    }

    /// The entries of each step, by its number.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        (0..).map_while(|step| Some((step, self.entries(step)?)))
    }

    /// For each completed step, the first entry after it.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub fn marker(&self) -> Option<StepMarker> {
        self.marker
    }
}

/// For each run of `phase` but a last one that is still open, the first entry after it.
fn run_ends(runs: &[PhaseRun], phase: Phase) -> Vec<u32> {
    let ends: Vec<u32> = runs.windows(2).filter(|pair| pair[0].phase == phase).map(|pair| pair[1].start).collect();
    merge_step_ends(&ends, runs)
}

/// Merges ends without forward or backward work between them: several optimizers in a row end one step, and so do
/// optimizers that run during one backward pass.
fn merge_step_ends(ends: &[u32], runs: &[PhaseRun]) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    let mut runs = runs.iter().peekable();
    for end in ends {
        // A pass has run since the previous end, and it did not start before that.
        let (mut has_pass, mut is_new_pass) = (false, false);
        while let Some(run) = runs.next_if(|run| run.start < *end) {
            has_pass |= matches!(run.phase, Phase::Forward | Phase::Backward);
            is_new_pass |= !matches!(run.phase, Phase::Backward | Phase::Optimizer);
        }
        match kept.last_mut() {
            Some(last) if !(has_pass && is_new_pass) => *last = *end,
            _ => kept.push(*end),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(phases: &[Phase]) -> Vec<PhaseRun> {
        (0..).step_by(10).zip(phases).map(|(start, phase)| PhaseRun { start, phase: *phase }).collect()
    }

    #[test]
    fn optimizer_runs_end_steps() {
        use Phase::{Backward, Forward, Init, Optimizer};
        let runs = runs(&[Init, Forward, Backward, Optimizer, Forward, Backward, Optimizer, Forward, Backward]);
        let steps = Steps::from_runs(&runs, &AnnotatedRanges::default(), 90);
        assert_eq!(steps.marker(), Some(StepMarker::OptimizerFrames));
        assert_eq!(
            [5, 10, 39, 40, 69, 70, 90].map(|entry| steps.step_at(entry)),
            [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!(steps.entries(0), Some(10..40));
        assert_eq!(steps.entries(1), Some(40..70));
        assert_eq!(steps.entries(2), Some(70..90));
        assert_eq!(steps.entries(3), None);
    }

    #[test]
    fn one_optimizer_run_is_not_enough_for_steps() {
        use Phase::{Backward, Forward, Optimizer};
        let runs = runs(&[Forward, Backward, Optimizer, Forward, Backward, Forward, Backward]);
        let steps = Steps::from_runs(&runs, &AnnotatedRanges::default(), 90);
        assert_eq!(steps.marker(), Some(StepMarker::BackwardFrames));
        assert_eq!(steps.ends(), [20, 50]);
    }

    #[test]
    fn consecutive_optimizers_end_one_step() {
        let runs = runs(&[Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Forward]);
        let annotations = AnnotatedRanges { step_ends: vec![22, 27, 40], ..AnnotatedRanges::default() };
        let steps = Steps::from_runs(&runs, &annotations, 90);
        assert_eq!(steps.marker(), Some(StepMarker::OptimizerStep));
        assert_eq!(steps.ends(), [27, 40]);
    }

    #[test]
    fn optimizers_during_a_backward_pass_end_one_step() {
        use Phase::{Backward, Forward, Optimizer};
        let one = [Forward, Backward, Optimizer, Backward, Optimizer];
        let runs = runs(&[&one[..], &one, &[Forward]].concat());
        let steps = Steps::from_runs(&runs, &AnnotatedRanges::default(), 110);
        assert_eq!(steps.ends(), [50, 100]);
        let annotations = AnnotatedRanges { step_ends: vec![26, 48, 77, 99], ..AnnotatedRanges::default() };
        assert_eq!(Steps::from_runs(&runs, &annotations, 110).ends(), [48, 99]);
    }

    #[test]
    fn a_program_without_steps_has_none() {
        let steps = Steps::from_runs(&runs(&[Phase::Data, Phase::Forward]), &AnnotatedRanges::default(), 90);
        assert_eq!((steps.marker(), steps.step_at(3), steps.entries(0)), (None, None, None));
    }
}
