//! Infers what the buckets of DDP contain: copies of the gradients, or the gradients themselves
//! (`gradient_as_bucket_view`). No allocation shows which. If backward passes leave too little memory for gradients of
//! their own, the buckets contain them.

use super::live_set::{LiveBlock, LiveSet};
use super::trace_counts::TraceCounts;
use crate::stacks::phases::{KnownPurpose, Phase, Phases};
use crate::study::category::{Category, Classification, Confidence};

/// The contents of DDP's buckets at a position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GradientBuckets {
    /// Copies of gradients that have memory of their own.
    Copies,
    /// The gradients themselves (`gradient_as_bucket_view`).
    Gradients,
    /// The program has no buckets.
    None,
    /// Nothing useful: `zero_grad` dropped the gradients, or they are still elsewhere. Also assumed if no recorded
    /// backward pass is complete.
    Empty,
    /// Nothing yet: the current backward pass fills and sends them at its end (`static_graph`).
    GradientsAtEnd,
}

impl GradientBuckets {
    pub(super) fn infer(live_set: &LiveSet, counts: &TraceCounts<'_>) -> Self {
        let phases = counts.phases;
        let buckets = live_set.blocks.iter().filter(|block| is_bucket(block, phases));
        let bytes: u64 = buckets.map(|block| block.requested_bytes).sum();
        // Without an entry, the position is the start of the trace.
        let (now, point) = (live_set.entry.unwrap_or(0), live_set.point);
        let runs = phases.runs().iter().take_while(|run| run.start as usize <= now);
        let last = runs.filter(|run| run.phase == Phase::Backward).last();
        match last {
            _ if bytes == 0 => Self::None,
            _ if counts.max_left_for_optimizer() > bytes / 2 => Self::Copies,
            _ if !counts.completes_backward() => Self::Empty,
            // A pass without communication (`no_sync`): the next pass accumulates into these gradients.
            _ if counts.outlived_bytes(point) > bytes / 2 => Self::Empty,
            _ if counts.freed_at_end(point) > bytes / 10 * 9 && !counts.is_after_last_allocation(point) => {
                Self::GradientsAtEnd
            }
            None => Self::Empty,
            Some(last) => {
                let since = last.start as usize..=now;
                let zero_grads = phases.zero_grad_ends();
                let are_dropped = if zero_grads.is_empty() {
                    let is_over = phases.steps.step_at(last.start as usize) != phases.steps.step_at(now);
                    is_over && matches!(phases.phase_at(now), Phase::Data | Phase::Forward)
                } else {
                    zero_grads.iter().any(|end| since.contains(&(*end as usize)))
                };
                if are_dropped { Self::Empty } else { Self::Gradients }
            }
        }
    }

    /// Reclassifies buckets that have no gradients yet, because passes without communication (`no_sync`) left gradients
    /// in memory of their own.
    pub(super) fn yield_to_gradients(self, live_set: &LiveSet, classified: &mut [Classification], phases: &Phases) {
        if self != Self::Gradients {
            return;
        }
        let (mut separate, mut in_buckets) = (0_u64, 0_u64);
        for (block, (category, _)) in live_set.blocks.iter().zip(classified.iter()) {
            match category {
                Category::Gradients if is_bucket(block, phases) => in_buckets += block.requested_bytes,
                Category::Gradients => separate += block.requested_bytes,
                _ => {}
            }
        }
        // While the next pass communicates, gradients move into the buckets one by one.
        if separate > in_buckets / 20 * 19 {
            for (block, classified) in live_set.blocks.iter().zip(classified) {
                if is_bucket(block, phases) {
                    *classified = Self::Empty.classification();
                }
            }
        }
    }

    /// The category of a bucket.
    pub(super) fn classification(self) -> Classification {
        match self {
            Self::Copies => (Category::Communication, Confidence::High),
            Self::Gradients => (Category::Gradients, Confidence::Medium),
            Self::Empty | Self::GradientsAtEnd | Self::None => (Category::Communication, Confidence::Medium),
        }
    }
}

fn is_bucket(block: &LiveBlock, phases: &Phases) -> bool {
    phases.stack_traits(block.stack).purpose == Some(KnownPurpose::GradientBuckets)
}
