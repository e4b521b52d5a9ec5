//! Classifies what a forward pass allocates: a graph, a result, a temporary.

use super::classify::{Case, Classifier};
use super::live_set::{LiveBlock, TracePoint};
use crate::stacks::phases::Phase;
use crate::study::category::Category::{Activations, Other, Temporaries};
use crate::study::category::Classification;
use crate::study::category::Confidence::{High, Low, Medium};

impl Classifier<'_> {
    pub(super) fn classify_forward(&self, case: &Case<'_>) -> Classification {
        match case.block.freed_at {
            _ if !self.counts.has_backward() => self.classify_without_backward(case),
            Some(_) => self.classify_freed(case),
            None => self.classify_not_freed(case),
        }
    }

    fn classify_not_freed(&self, case: &Case<'_>) -> Classification {
        let Case { traits, allocated_at, end, frees, .. } = *case;
        let is_old = case.is_old();
        let pass = self.counts.forward_pass(allocated_at);
        match case.passes_begun {
            0 if self.keeps_result(case) => (Other, Low),
            // Computed from such a result after the pass.
            0 if !pass.keeps_graph() && !traits.has_forward_frame && frees.after_backward_start == 0 => (Other, Low),
            // The recording ends in this forward pass, or in the backward pass after it.
            0 if end.run == allocated_at.run && !is_old && frees.before_any_backward() > frees.after_backward_start => {
                (Temporaries, Medium)
            }
            _ if self.is_kept_result(allocated_at) => (Other, Low),
            0 | 1 if frees.are_saved_for_backward() && is_old => (Activations, High),
            0 | 1 if frees.after_backward_start > 0 && is_old => (Activations, Medium),
            // Code beside the modules may keep data.
            0 if end.run == allocated_at.run && !traits.has_forward_frame => (Activations, Low),
            0 if end.run == allocated_at.run => (Activations, Medium),
            1 if self.counts.phase(end) == Phase::Backward => (Activations, Medium),
            // If several passes left such blocks, they belong to graphs that no backward pass freed. If only one did,
            // the block is a buffer or a library's workspace.
            _ if pass.retains_graph()
                && self.never_freed(case.block).is_some_and(|kept| kept.first_pass < kept.last_pass) =>
            {
                (Activations, Low)
            }
            // An output that the program keeps.
            _ => (Other, Low),
        }
    }

    fn classify_freed(&self, case: &Case<'_>) -> Classification {
        let Case { allocated_at, end, .. } = *case;
        let forwards_begun = self.forwards_begun(allocated_at, end);
        let is_result = self.is_result(allocated_at, end);
        match case.passes_begun {
            0 if case.is_freed_in_run() && forwards_begun == 0 => (Temporaries, High),
            0 if is_result && forwards_begun > 1 => (Other, Low),
            0 => (Temporaries, Medium),
            1 if case.is_freed_by_backward => (Activations, High),
            _ if is_result && !case.frees.are_saved_for_backward() => (Other, Low),
            _ if case.is_freed_by_backward => (Activations, Medium),
            _ if self.is_kept_result(allocated_at) => (Other, Low),
            // Lived longer than the backward pass that may have needed it.
            _ => (Activations, Low),
        }
    }

    /// Classifies a block of a forward pass in a recording without a backward pass: inference, or an end within the
    /// first step.
    fn classify_without_backward(&self, case: &Case<'_>) -> Classification {
        let is_done = case.passes_begun > 0;
        match case.block.freed_at {
            _ if case.is_freed_in_run() && !is_done => (Temporaries, High),
            // A graph that no backward pass used.
            _ if is_done && self.counts.forward_pass(case.allocated_at).keeps_graph() => (Activations, Low),
            // A result, or a cache.
            _ if is_done => (Other, Low),
            Some(_) => (Temporaries, Medium),
            None if self.keeps_result(case) => (Other, Low),
            None if !case.is_old() && case.frees.before_any_backward() > 0 => (Temporaries, Medium),
            // Without a graph, a pass keeps results and caches.
            None if !self.is_graph_likely(case.allocated_at) => (Other, Low),
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
    fn keeps_result(&self, case: &Case<'_>) -> bool {
        // A cache that each pass replaces, or results that are kept.
        let outlive_pass = case.frees.after_next_forward > case.frees.before_any_backward() / 2;
        let are_kept = outlive_pass || self.never_freed(case.block).is_some_and(|kept| kept.are_results);
        self.is_result(case.allocated_at, self.observed_until)
            || are_kept && !self.counts.forward_pass(case.allocated_at).keeps_graph()
    }

    /// Whether a forward pass without a graph left a block, and another forward pass started before `end`.
    pub(super) fn is_result(&self, allocated_at: TracePoint, end: TracePoint) -> bool {
        self.counts.phase(allocated_at) == Phase::Forward
            && !self.counts.forward_pass(allocated_at).keeps_graph()
            && self.forwards_begun(allocated_at, end) > 0
    }
}
