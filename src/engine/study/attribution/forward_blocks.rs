//! Classifies what a forward pass allocates: a graph, a result, a temporary.

use super::classify::Classifier;
use super::live_set::{LiveBlock, TracePoint};
use crate::stacks::phases::{Phase, StackTraits};
use crate::study::category::Category::{Activations, Other, Temporaries};
use crate::study::category::Classification;
use crate::study::category::Confidence::{High, Low, Medium};

impl Classifier<'_> {
    pub(super) fn classify_forward(
        &self,
        block: &LiveBlock,
        allocated_at: TracePoint,
        traits: StackTraits,
    ) -> Classification {
        match block.freed_at {
            _ if !self.counts.has_backward() => self.classify_without_backward(block, allocated_at),
            Some(freed) => self.classify_freed(block, allocated_at, freed),
            None => self.classify_not_freed(block, allocated_at, traits),
        }
    }

    fn classify_not_freed(&self, block: &LiveBlock, allocated_at: TracePoint, traits: StackTraits) -> Classification {
        let end = self.observed_until;
        let counts = self.counts.free_counts(block.stack);
        let is_old = end.entry - allocated_at.entry > counts.max_early_lifetime;
        match self.passes_begun(block, allocated_at) {
            0 if self.keeps_result(block, allocated_at) => (Other, Low),
            // Computed from such a result after the pass.
            0 if !self.counts.forward_pass(allocated_at).keeps_graph()
                && !traits.has_forward_frame
                && counts.after_backward_start == 0 =>
            {
                (Other, Low)
            }
            // The recording ends in this forward pass, or in the backward pass after it.
            0 if end.run == allocated_at.run
                && !is_old
                && counts.before_any_backward() > counts.after_backward_start =>
            {
                (Temporaries, Medium)
            }
            _ if self.is_kept_result(allocated_at) => (Other, Low),
            0 | 1 if counts.are_saved_for_backward() && is_old => (Activations, High),
            0 | 1 if counts.after_backward_start > 0 && is_old => (Activations, Medium),
            // Code beside the modules may keep data.
            0 if end.run == allocated_at.run && !traits.has_forward_frame => (Activations, Low),
            0 if end.run == allocated_at.run => (Activations, Medium),
            1 if self.counts.phase(end) == Phase::Backward => (Activations, Medium),
            // If several passes left such blocks, they belong to graphs that no backward pass freed. If only one did,
            // the block is a buffer or a library's workspace.
            _ if self.never_freed(block).is_some_and(|kept| kept.first_pass < kept.last_pass)
                && self.counts.forward_pass(allocated_at).retains_graph() =>
            {
                (Activations, Low)
            }
            // An output that the program keeps.
            _ => (Other, Low),
        }
    }

    fn classify_freed(&self, block: &LiveBlock, allocated_at: TracePoint, freed: TracePoint) -> Classification {
        match self.passes_begun(block, allocated_at) {
            0 if freed.run == allocated_at.run && self.forwards_begun(allocated_at, freed) == 0 => (Temporaries, High),
            0 if self.is_result(allocated_at, freed) && self.forwards_begun(allocated_at, freed) > 1 => (Other, Low),
            0 => (Temporaries, Medium),
            1 if self.is_freed_by_backward(block) => (Activations, High),
            _ if self.is_result(allocated_at, freed)
                && !self.counts.free_counts(block.stack).are_saved_for_backward() =>
            {
                (Other, Low)
            }
            _ if self.is_kept_result(allocated_at) && !self.is_freed_by_backward(block) => (Other, Low),
            _ if self.is_freed_by_backward(block) => (Activations, Medium),
            // Lived longer than the backward pass that may have needed it.
            _ => (Activations, Low),
        }
    }

    /// Classifies a block of a forward pass in a recording without a backward pass: inference, or an end within the
    /// first step.
    fn classify_without_backward(&self, block: &LiveBlock, allocated_at: TracePoint) -> Classification {
        let end = block.freed_at.unwrap_or(self.observed_until);
        let is_done = self.forwards_begun(allocated_at, end) > 0;
        let counts = self.counts.free_counts(block.stack);
        let is_old = end.entry - allocated_at.entry > counts.max_early_lifetime;
        match block.freed_at {
            Some(freed) if freed.run == allocated_at.run && !is_done => (Temporaries, High),
            // A graph that no backward pass used.
            _ if is_done && self.counts.forward_pass(allocated_at).keeps_graph() => (Activations, Low),
            // A result, or a cache.
            _ if is_done => (Other, Low),
            Some(_) => (Temporaries, Medium),
            None if self.keeps_result(block, allocated_at) => (Other, Low),
            None if !is_old && counts.before_any_backward() > 0 => (Temporaries, Medium),
            // Without a graph, a pass keeps results and caches.
            None if !self.is_graph_likely(allocated_at) => (Other, Low),
            None => (Activations, Low),
        }
    }

    /// Whether the forward pass of `point`, in which the recording ends, probably keeps a graph. The pass before it is
    /// complete, so it decides if there is one.
    pub(super) fn is_graph_likely(&self, point: TracePoint) -> bool {
        let pass = self.counts.forward_pass_before(point).filter(|before| !before.is_tiny());
        let pass = pass.unwrap_or_else(|| self.counts.forward_pass(point));
        pass.keeps_graph() && !pass.is_tiny()
    }

    /// Whether a block is a half-precision copy of a parameter, which autocast keeps until the end of a pass without a
    /// graph.
    pub(super) fn is_cast(&self, block: &LiveBlock, allocated_at: TracePoint) -> bool {
        self.forwards_begun(allocated_at, self.observed_until) == 0
            && block.requested_bytes.checked_mul(2).is_some_and(|size| self.parameters.contains(&size))
    }

    /// Whether the backward pass after `allocated_at` is over and freed its graph, so that a variable keeps the block.
    fn is_kept_result(&self, allocated_at: TracePoint) -> bool {
        let [before, now] = [allocated_at, self.point].map(|point| self.counts.backward_passes_at(point));
        let is_over = now > before + u32::from(self.counts.phase(self.point) == Phase::Backward);
        is_over && !self.counts.forward_pass(allocated_at).retains_graph()
    }

    /// Whether a block that is never freed is the result of a forward pass without a graph.
    fn keeps_result(&self, block: &LiveBlock, allocated_at: TracePoint) -> bool {
        let counts = self.counts.free_counts(block.stack);
        // A cache that each pass replaces, or results that are kept.
        let outlive_pass = counts.after_next_forward > counts.before_any_backward() / 2;
        let are_kept = outlive_pass || self.never_freed(block).is_some_and(|kept| kept.are_results);
        self.is_result(allocated_at, self.observed_until)
            || are_kept && !self.counts.forward_pass(allocated_at).keeps_graph()
    }

    /// Whether a forward pass without a graph left a block, and another forward pass started before `end`.
    pub(super) fn is_result(&self, allocated_at: TracePoint, end: TracePoint) -> bool {
        self.counts.phase(allocated_at) == Phase::Forward
            && !self.counts.forward_pass(allocated_at).keeps_graph()
            && self.forwards_begun(allocated_at, end) > 0
    }
}
