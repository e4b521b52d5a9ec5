//! Counts all blocks of a trace in one pass: by stack, by requested size, by forward pass and by phase run.

use super::forward_pass::{ForwardPass, FreeCounts, OutlivedBytes, RunCounts, count_passes};
use super::live_set::{OpenBlock, TracePoint, is_run_by_program, traits_of_free};
use super::pass_sizes::PassSizes;
use crate::base::ids::{StackId, to_u32};
use crate::stacks::phases::{KnownPurpose, Phase, Phases};
use crate::study::DeviceStudy;

/// Counts of the blocks of one trace. Runs are numbered as in `TracePoint::run`.
pub(super) struct TraceCounts<'a> {
    pub(super) phases: &'a Phases,
    runs: Vec<RunCounts>,
    /// The first is that of all runs but backward runs: see [`RunCounts::outlived`].
    outlived: Vec<OutlivedBytes>,
    /// See [`Self::freed_at_end`]: by run, ascending.
    freed_at_end: Vec<(u32, u64)>,
    /// Number of forward passes that have started: see [`Phases::forwards_begun`].
    forwards_begun: usize,
    /// Blocks of each forward pass, numbered by [`Phases::forwards_begun`].
    forward_passes: Vec<ForwardPass>,
    pub(super) sizes: PassSizes,
    /// By stack.
    free_counts: Vec<FreeCounts>,
    /// Frees have stacks, so user code that frees is known.
    pub(super) has_stacks_of_frees: bool,
    /// The last failed request so far, or the last allocation once it has passed: frees after it are teardown.
    pub(super) teardown_after: Option<u32>,
}

impl<'a> TraceCounts<'a> {
    pub(super) fn new(device: DeviceStudy<'a, '_>) -> Self {
        let phases = device.phases();
        let (runs, outlived) = count_passes(phases.runs());
        Self {
            phases,
            runs,
            outlived,
            freed_at_end: Vec::new(),
            forwards_begun: 0,
            forward_passes: vec![ForwardPass::default(); phases.forwards_begun(usize::MAX) + 1],
            sizes: PassSizes::default(),
            free_counts: vec![FreeCounts::default(); device.snapshot().stacks.len()],
            has_stacks_of_frees: false,
            teardown_after: None,
        }
    }

    /// Moves `at` to the next entry, `entry`.
    pub(super) fn advance(&mut self, at: &mut TracePoint, entry: u32) {
        at.entry = entry;
        if self.phases.runs().get(at.run as usize).is_some_and(|next| next.start <= entry) {
            at.run += 1;
        }
        if self.phases.forward_starts.get(self.forwards_begun).is_some_and(|start| *start <= entry) {
            self.forwards_begun += 1;
        }
    }

    /// Counts an allocation.
    pub(super) fn alloc(&mut self, at: TracePoint, requested_bytes: u64, stack: StackId) -> OpenBlock {
        if let Some(run) = at.run_index().and_then(|run| self.runs.get_mut(run)) {
            run.last_alloc = at.entry;
        }
        self.freed_at_end.pop_if(|(run, _)| *run == at.run);
        let traits = self.phases.stack_traits(stack);
        match self.phase(at) {
            Phase::Backward if !traits.has_forward_frame => {
                self.sizes.add_computed(self.backward_passes_at(at), requested_bytes);
            }
            Phase::Forward => {
                self.forward_passes[self.forwards_begun]
                    .count(traits.has_forward_frame, |counts| &mut counts.allocated);
            }
            _ => {}
        }
        match traits.purpose {
            Some(KnownPurpose::Parameters) => {
                self.sizes.parameters.insert(requested_bytes);
            }
            Some(KnownPurpose::GatheredParameters) => {
                self.sizes.gathered.insert(requested_bytes);
            }
            _ => {}
        }
        OpenBlock { requested_bytes, stack, allocated_at: at, forwards_begun: to_u32(self.forwards_begun) }
    }

    /// Counts the free of `block` under `stack`.
    pub(super) fn free(&mut self, block: &OpenBlock, stack: StackId, freed: TracePoint) {
        let allocated_at = block.allocated_at;
        self.has_stacks_of_frees |= stack != block.stack && self.phases.stack_traits(stack).caller.is_some();
        let freed_by = traits_of_free(self.phases, stack, block.stack, allocated_at.run == freed.run);
        let by_program = is_run_by_program(freed_by);
        if self.teardown_after.is_some_and(|since| allocated_at.entry <= since) {
            return; // teardown
        }
        let forward = block.forwards_begun as usize;
        self.count_outliving_pass(block, freed, by_program);
        let last = self.forwards_begun;
        let [passes_before, passes_after] = [allocated_at, freed].map(|point| self.backward_passes_at(point));
        let (passes, is_before_backward) = (passes_after.saturating_sub(passes_before), passes_before == passes_after);
        let in_forward = self.phase(allocated_at) == Phase::Forward;
        let is_module_block = in_forward && self.phases.stack_traits(block.stack).has_forward_frame;
        if in_forward && forward == last && is_before_backward {
            self.forward_passes[forward].count(is_module_block, |counts| &mut counts.freed);
        }
        let in_backward = self.phase(freed) == Phase::Backward && !by_program;
        if in_forward && passes > 0 && in_backward {
            self.forward_passes[forward].count(is_module_block, |counts| &mut counts.freed_by_backward);
        }
        if self.phase(allocated_at) == Phase::Data
            && passes > 0
            && in_backward
            && let Some(next) = self.forward_passes.get_mut(forward + 1)
        {
            next.count_older();
        }
        if allocated_at.run == freed.run
            && self.phase(freed) == Phase::Backward
            && self.sizes.parameters.contains(&block.requested_bytes)
        {
            let before = self.freed_at_end.pop_if(|(run, _)| *run == freed.run).map_or(0, |(_, bytes)| bytes);
            self.freed_at_end.push((freed.run, before.saturating_add(block.requested_bytes)));
        }
        let counts = &mut self.free_counts[block.stack.index()];
        if allocated_at.run == freed.run {
            counts.in_run += 1;
        } else if passes == 0 {
            counts.before_backward += 1;
        } else {
            counts.after_backward_start += 1;
            counts.in_backward += u32::from(in_backward);
        }
        counts.after_next_forward += u32::from(last > forward && is_before_backward);
        counts.max_passes = counts.max_passes.max(passes);
        if passes == 0 {
            counts.max_early_lifetime = counts.max_early_lifetime.max(freed.entry - allocated_at.entry);
        }
    }

    /// Counts `block` if a backward run allocated it, and it was live at `end`, after that run.
    fn count_outliving_pass(&mut self, block: &OpenBlock, end: TracePoint, by_program: bool) {
        let allocated_at = block.allocated_at;
        if self.phase(allocated_at) == Phase::Backward && (allocated_at.run != end.run || by_program) {
            self.sizes.add_outliving(allocated_at.run, block.requested_bytes);
            let is_left = by_program || self.phase(end) != Phase::Backward;
            let row = self.counts_at(allocated_at).map_or(0, |run| run.outlived);
            self.outlived[row as usize].add(block.requested_bytes, is_left);
        }
    }

    /// Counts the blocks that are live at the end of the trace.
    pub(super) fn finish<'l>(&mut self, live: impl Iterator<Item = &'l OpenBlock>, at: TracePoint) {
        for block in live {
            // A block that also outlives the next backward pass is no gradient.
            if self.backward_passes_at(block.allocated_at) == self.backward_passes_at(at) {
                self.count_outliving_pass(block, at, false);
            }
        }
        self.sizes.finish();
    }

    pub(super) fn free_counts(&self, stack: StackId) -> FreeCounts {
        self.free_counts[stack.index()]
    }

    pub(super) fn point(&self, entry: usize) -> TracePoint {
        TracePoint { entry: to_u32(entry), run: to_u32(self.phases.runs_begun(entry)) }
    }

    /// The training step of `point`.
    pub(super) fn step_at(&self, point: TracePoint) -> Option<u32> {
        self.phases.steps.step_at(point.entry as usize)
    }

    /// Number of forward passes that started up to `point`.
    pub(super) fn forwards_begun_at(&self, point: TracePoint) -> usize {
        self.phases.forwards_begun(point.entry as usize)
    }

    pub(super) fn phase(&self, point: TracePoint) -> Phase {
        point.run_index().map_or(Phase::Other, |run| self.phases.runs()[run].phase)
    }

    /// Whether the run of `point` may already be over: it allocates nothing more, and frees have no stacks.
    pub(super) fn may_have_ended(&self, point: TracePoint) -> bool {
        !self.has_stacks_of_frees && self.is_after_last_allocation(point)
    }

    /// The forward pass of `point`.
    pub(super) fn forward_pass(&self, point: TracePoint) -> ForwardPass {
        self.forward_passes[self.forwards_begun_at(point)]
    }

    /// The forward pass before that of `point`.
    pub(super) fn forward_pass_before(&self, point: TracePoint) -> Option<ForwardPass> {
        let pass = self.forwards_begun_at(point).checked_sub(1);
        pass.filter(|pass| *pass > 0).map(|pass| self.forward_passes[pass])
    }

    /// The first forward pass that starts after `point`.
    pub(super) fn forward_pass_after(&self, point: TracePoint) -> Option<ForwardPass> {
        self.forward_passes.get(self.forwards_begun_at(point) + 1).copied()
    }

    pub(super) fn has_backward(&self) -> bool {
        self.runs.last().is_some_and(|run| run.backward_passes > 0)
    }

    /// Maximum number of bytes that a backward pass left for later code.
    pub(super) fn max_left_for_optimizer(&self) -> u64 {
        self.outlived.iter().map(|run| run.left_for_optimizer).max().unwrap_or(0)
    }

    /// Whether `point` is after the last allocation of its run.
    pub(super) fn is_after_last_allocation(&self, point: TracePoint) -> bool {
        self.counts_at(point).is_some_and(|run| run.last_alloc < point.entry)
    }

    /// Whether a backward pass completed within the recording.
    pub(super) fn completes_backward(&self) -> bool {
        // The last run may be incomplete.
        self.runs.iter().rev().nth(1).is_some_and(|run| run.backward_passes > 0)
    }

    /// Number of backward passes that started before entry `entry`.
    pub(super) fn backward_passes_before(&self, entry: usize) -> u32 {
        let run = self.phases.runs().partition_point(|run| (run.start as usize) < entry);
        self.backward_passes_at(TracePoint { entry: to_u32(entry), run: to_u32(run) })
    }

    /// Number of backward passes that started up to `point`.
    pub(super) fn backward_passes_at(&self, point: TracePoint) -> u32 {
        self.counts_at(point).map_or(0, |run| run.backward_passes)
    }

    /// Bytes that outlived the run of `point`, if it is a backward run.
    pub(super) fn outlived_bytes(&self, point: TracePoint) -> u64 {
        self.counts_at(point).map_or(0, |run| self.outlived[run.outlived as usize].all)
    }

    /// Bytes with parameter sizes that the backward run of `point` allocated, and freed after its last allocation.
    pub(super) fn freed_at_end(&self, point: TracePoint) -> u64 {
        self.freed_at_end.binary_search_by_key(&point.run, |(run, _)| *run).map_or(0, |at| self.freed_at_end[at].1)
    }

    fn counts_at(&self, point: TracePoint) -> Option<&RunCounts> {
        self.runs.get(point.run_index()?)
    }
}
