//! The buckets in which replicated training sends gradients. They hold copies of them, or are the only memory
//! that gradients have (`gradient_as_bucket_view`), which no allocation tells: where backward passes leave nothing
//! that is as large as gradients must be, it is the latter.

use super::kinds::{Category, Confidence, Judged};
use super::lives::{LiveSet, Lives};
use crate::phases::{Makes, Phase, PhaseRun, Phases};

/// What the buckets of replicated training hold at a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Buckets {
    /// Copies of gradients, which have memory of their own.
    Copies,
    /// The gradients themselves (`gradient_as_bucket_view`).
    Gradients,
    /// The gradients themselves, or copies: no backward pass has come to its end.
    Unknown,
    /// What was the gradients themselves, until they were given up.
    Empty,
}

impl Buckets {
    /// Of the buckets that the program held at `moment`.
    pub(super) fn at(moment: &LiveSet, lives: &Lives<'_>, phases: &Phases) -> Self {
        let buckets = moment
            .blocks
            .iter()
            .filter(|block| phases.signs_of(block.stack).makes == Some(Makes::Buckets));
        let bytes: u64 = buckets.map(|block| block.requested).sum();
        let kept = lives.kept_by_backward.iter();
        let kept: u64 = kept.map(|(size, blocks)| size.saturating_mul(u64::from(*blocks))).sum();
        let now = moment.entry.unwrap_or(0);
        let is_begun = |run: &&PhaseRun| run.start as usize <= now;
        let runs = phases.runs().iter().take_while(is_begun);
        let last = runs.filter(|run| run.phase == Phase::Backward).last();
        match last {
            _ if kept > bytes / 2 => Self::Copies,
            _ if !lives.ends_backward() => Self::Unknown,
            None => Self::Empty,
            Some(last) => {
                let since = last.start as usize..=now;
                let given_up = phases.zero_grad_ends();
                let is_given_up = if given_up.is_empty() {
                    let is_over = phases.step_of(last.start as usize) != phases.step_of(now);
                    is_over && matches!(phases.phase_of(now), Phase::Data | Phase::Forward)
                } else {
                    given_up.iter().any(|end| since.contains(&(*end as usize)))
                };
                if is_given_up { Self::Empty } else { Self::Gradients }
            }
        }
    }

    /// What such a bucket is for.
    pub(super) fn judged(self) -> Judged {
        match self {
            Self::Copies => (Category::Communication, Confidence::High),
            Self::Gradients => (Category::Gradients, Confidence::Medium),
            Self::Unknown | Self::Empty => (Category::Communication, Confidence::Medium),
        }
    }
}
