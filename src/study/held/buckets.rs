//! The buckets in which replicated training sends gradients. They hold copies of them, or are the only memory
//! that gradients have (`gradient_as_bucket_view`), which no allocation tells: where backward passes leave nothing
//! that is as large as gradients must be, it is the latter.

use super::kinds::{Category, Confidence, Judged};
use super::lives::{LiveBlock, LiveSet, Lives};
use crate::stacks::phases::{KnownPurpose, Phase, PhaseRun, Phases};

/// What the buckets of replicated training hold at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Buckets {
    /// Copies of gradients, which have memory of their own.
    Copies,
    /// The gradients themselves (`gradient_as_bucket_view`).
    Gradients,
    /// The gradients themselves, or copies: no backward pass has come to its end.
    Unknown,
    /// There are none.
    None,
    /// What was the gradients themselves, until they were given up.
    Empty,
    /// The gradients themselves from the end of the pass on that goes on: it sends them all then (`static_graph`).
    Late,
}

impl Buckets {
    /// Of the buckets that the program held at `moment`.
    pub(super) fn at(moment: &LiveSet, lives: &Lives<'_>, phases: &Phases) -> Self {
        let buckets = moment
            .blocks
            .iter()
            .filter(|block| phases.stack_traits(block.stack).purpose == Some(KnownPurpose::GradientBuckets));
        let bytes: u64 = buckets.map(|block| block.requested).sum();
        let (now, run) = (moment.entry.unwrap_or(0), moment.at.run);
        let is_begun = |run: &&PhaseRun| run.start as usize <= now;
        let runs = phases.runs().iter().take_while(is_begun);
        let last = runs.filter(|run| run.phase == Phase::Backward).last();
        match last {
            _ if bytes == 0 => Self::None,
            _ if lives.most_left() > bytes / 2 => Self::Copies,
            _ if !lives.ends_backward() => Self::Unknown,
            // A pass that sends nothing: what it makes is kept, to be added to what the next one sends.
            _ if lives.phase(moment.at) == Phase::Backward
                && lives.kept_in_pass(run) > bytes / 2 =>
            {
                Self::Empty
            }
            _ if lives.phase(moment.at) == Phase::Backward
                && !lives.is_after_last_allocation(moment.at)
                && lives.freed_at_end(run) > bytes / 10 * 9 =>
            {
                Self::Late
            }
            None => Self::Empty,
            Some(last) => {
                let since = last.start as usize..=now;
                let given_up = phases.zero_grad_ends();
                let is_given_up = if given_up.is_empty() {
                    let is_over = phases.step_at(last.start as usize) != phases.step_at(now);
                    is_over && matches!(phases.phase_at(now), Phase::Data | Phase::Forward)
                } else {
                    given_up.iter().any(|end| since.contains(&(*end as usize)))
                };
                if is_given_up { Self::Empty } else { Self::Gradients }
            }
        }
    }

    /// Buckets are not the gradients yet where these have memory of their own: passes that sent nothing left
    /// it, to be added to what the next one sends.
    pub(super) fn give_way(self, moment: &LiveSet, judged: &mut [Judged], phases: &Phases) {
        if self != Self::Gradients {
            return;
        }
        let is_bucket =
            |block: &LiveBlock| phases.stack_traits(block.stack).purpose == Some(KnownPurpose::GradientBuckets);
        let (mut own, mut in_buckets) = (0_u64, 0_u64);
        for (block, (category, _)) in moment.blocks.iter().zip(judged.iter()) {
            match category {
                Category::Gradients if is_bucket(block) => in_buckets += block.requested,
                Category::Gradients => own += block.requested,
                _ => {}
            }
        }
        // As the next one sends them they become less, and each has its place in a bucket.
        if own > in_buckets / 20 * 19 {
            for (block, judged) in moment.blocks.iter().zip(judged) {
                if is_bucket(block) {
                    *judged = Self::Empty.judged();
                }
            }
        }
    }

    /// What such a bucket is for.
    pub(super) fn judged(self) -> Judged {
        match self {
            Self::Copies => (Category::Communication, Confidence::High),
            Self::Gradients => (Category::Gradients, Confidence::Medium),
            Self::Unknown | Self::Empty | Self::Late | Self::None => {
                (Category::Communication, Confidence::Medium)
            }
        }
    }
}
