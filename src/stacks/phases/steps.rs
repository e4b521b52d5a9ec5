//! Training steps: what repeats.

use std::ops::Range;

use super::named::Named;
use super::phase::{Phase, PhaseRun};
use crate::base::ids::row;
use crate::base::warning::words;

words! {
    /// What steps are told apart by.
    #[non_exhaustive]
    pub enum StepsFrom {
        /// The `Optimizer.step` that PyTorch records beside the trace (since 2.5)
        OptimizerStep = "optimizer-step",
        /// Allocations that the optimizer made
        OptimizerFrames = "optimizer-frames",
        /// The `Optimizer.zero_grad` that PyTorch records beside the trace (since 2.5)
        ZeroGrad = "zero-grad",
        /// Backward passes: with gradient accumulation, a step is one of several
        BackwardFrames = "backward-frames",
    }
}

/// Where steps end.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The entry with which the first step begins.
    first: u32,
    /// The first entry after each step.
    ends: Vec<u32>,
    /// Entries of the trace.
    len: usize,
    from: Option<StepsFrom>,
}

impl Steps {
    /// In a trace of `len` entries.
    pub(super) fn of(runs: &[PhaseRun], named: &Named, len: usize) -> Self {
        let candidates = [
            (StepsFrom::OptimizerStep, apart(&named.step_ends, runs), 1),
            (StepsFrom::OptimizerFrames, run_ends(runs, Phase::Optimizer), 2),
            (StepsFrom::ZeroGrad, apart(&named.zero_grad_ends, runs), 2),
            (StepsFrom::BackwardFrames, run_ends(runs, Phase::Backward), 1),
        ];
        let found = candidates.into_iter().find(|(_, ends, least)| ends.len() >= *least);
        let Some((from, ends, _)) = found else { return Self::default() };
        let until = ends.first().copied().unwrap_or(0);
        // The first step begins when the model has been built.
        let built = runs.partition_point(|run| run.start < until);
        let built = runs.get(..built).unwrap_or_default();
        let built = built.iter().rposition(|run| run.phase == Phase::Init);
        let first = built.and_then(|at| runs.get(at + 1)).map_or(0, |run| run.start);
        Self { first, ends, len, from: Some(from) }
    }

    pub(super) fn of_entry(&self, entry: usize) -> Option<u32> {
        if self.from.is_none() || entry < self.first as usize {
            return None;
        }
        Some(row(self.ends.partition_point(|end| *end as usize <= entry)))
    }

    pub(super) fn entries(&self, step: u32) -> Option<Range<usize>> {
        self.from?;
        let step = step as usize;
        let start = match step.checked_sub(1) {
            None => self.first,
            Some(before) => *self.ends.get(before)?,
        };
        Some(start as usize..self.ends.get(step).map_or(self.len, |end| *end as usize))
    }

    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub(super) fn from(&self) -> Option<StepsFrom> {
        self.from
    }
}

/// The ends of runs of `phase`.
fn run_ends(runs: &[PhaseRun], phase: Phase) -> Vec<u32> {
    let ends: Vec<u32> = runs
        .windows(2)
        .filter_map(|pair| match pair {
            [run, next] if run.phase == phase => Some(next.start),
            _ => None,
        })
        .collect();
    apart(&ends, runs)
}

/// Of `ends`, those with work of a model since the one before: several optimizers that step one after
/// another end one step, and so do those that step in the midst of one backward pass.
fn apart(ends: &[u32], runs: &[PhaseRun]) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    let mut runs = runs.iter().peekable();
    for end in ends {
        let (mut worked, mut began) = (false, false);
        while let Some(run) = runs.next_if(|run| run.start < *end) {
            worked |= matches!(run.phase, Phase::Forward | Phase::Backward);
            began |= !matches!(run.phase, Phase::Backward | Phase::Optimizer);
        }
        match kept.last_mut() {
            Some(last) if !(worked && began) => *last = *end,
            _ => kept.push(*end),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(phases: &[Phase]) -> Vec<PhaseRun> {
        let run = |(at, phase): (usize, &Phase)| PhaseRun { start: row(10 * at), phase: *phase };
        phases.iter().enumerate().map(run).collect()
    }

    #[test]
    fn steps_end_with_their_optimizer() {
        use Phase::{Backward, Forward, Init, Optimizer};
        let runs = runs(&[
            Init, Forward, Backward, Optimizer, Forward, Backward, Optimizer, Forward, Backward,
        ]);
        let steps = Steps::of(&runs, &Named::default(), 90);
        assert_eq!(steps.from(), Some(StepsFrom::OptimizerFrames));
        let of = |entry| steps.of_entry(entry);
        assert_eq!(
            [of(5), of(10), of(39), of(40), of(69), of(70), of(90)],
            [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!(steps.entries(0), Some(10..40));
        assert_eq!(steps.entries(1), Some(40..70));
        assert_eq!(steps.entries(2), Some(70..90));
        assert_eq!(steps.entries(3), None);
    }

    #[test]
    fn an_optimizer_that_allocates_once_tells_no_steps() {
        use Phase::{Backward, Forward, Optimizer};
        let runs = runs(&[Forward, Backward, Optimizer, Forward, Backward, Forward, Backward]);
        let steps = Steps::of(&runs, &Named::default(), 90);
        assert_eq!(steps.from(), Some(StepsFrom::BackwardFrames));
        assert_eq!(steps.ends(), [20, 50]);
    }

    #[test]
    fn optimizers_one_after_another_end_one_step() {
        let runs = runs(&[Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Forward]);
        let named = Named { step_ends: vec![22, 27, 40], ..Named::default() };
        let steps = Steps::of(&runs, &named, 90);
        assert_eq!(steps.from(), Some(StepsFrom::OptimizerStep));
        assert_eq!(steps.ends(), [27, 40]);
    }

    #[test]
    fn optimizers_in_a_backward_pass_end_one_step() {
        use Phase::{Backward, Forward, Optimizer};
        let one = [Forward, Backward, Optimizer, Backward, Optimizer];
        let runs = runs(&[&one[..], &one, &[Forward]].concat());
        let steps = Steps::of(&runs, &Named::default(), 110);
        assert_eq!(steps.ends(), [50, 100]);
        let named = Named { step_ends: vec![26, 48, 77, 99], ..Named::default() };
        assert_eq!(Steps::of(&runs, &named, 110).ends(), [48, 99]);
    }

    #[test]
    fn a_program_without_steps_has_none() {
        let steps = Steps::of(&runs(&[Phase::Data, Phase::Forward]), &Named::default(), 90);
        assert_eq!((steps.from(), steps.of_entry(3), steps.entries(0)), (None, None, None));
    }
}
