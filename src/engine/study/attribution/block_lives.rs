//! Collects block lifetimes in one pass over the trace: the live blocks of some positions with their allocation and
//! free, statistics of all blocks by stack and by phase run.

use std::collections::BTreeSet;

use super::forward_pass::{ForwardPass, FreeCounts};
use super::leaks::growing_lines;
use super::live_set::{LiveBlock, LiveSet, OpenBlock, OpenBlocks, TracePoint, is_run_by_program, open_initial_blocks};
use super::named::NamedBlocks;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::snapshot::{Action, TraceEntry};
use crate::stacks::phases::{KnownPurpose, Phase, Phases, StackTraits};
use crate::study::DeviceStudy;
use crate::study::block_sizes::{BlockSizes, SizeChange};

/// Evidence that parameters of some size were gathered for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GatherEvidence {
    Yes,
    Possible,
    No,
}

/// Padding of shards to equal size is at most the gathered size divided by this.
const MAX_PADDING_FRACTION: u64 = 8;

/// Counts of one phase run.
#[derive(Default)]
pub(super) struct RunCounts {
    /// Number of backward passes that have started.
    backward_passes: u32,
    /// The entry of its last allocation so far.
    last_alloc: u32,
    /// Bytes that outlived it, if it is a backward run, and that no backward pass freed.
    left_for_optimizer: u64,
    /// Bytes that outlived it, if it is a backward run.
    pub(super) outlived_bytes: u64,
    /// Bytes with parameter sizes that it allocated, and freed after its last allocation.
    pub(super) freed_at_end: u64,
}

/// Block lifetimes of one trace. Runs are numbered as in [`TracePoint::run`].
pub(super) struct BlockLives<'a> {
    pub(super) phases: &'a Phases,
    /// By run.
    run_counts: Vec<RunCounts>,
    /// Number of forward passes that have started: see [`Phases::forwards_begun`].
    forwards_begun: usize,
    /// Frees have stacks, so user code that frees is known.
    has_stacks_of_frees: bool,
    /// False for a snapshot without a trace, whose only live set is its own.
    pub(super) has_trace: bool,
    /// The trace starts with an empty allocator.
    pub(super) starts_empty: bool,
    pub(super) live_sets: Vec<LiveSet>,
    /// Blocks of live sets that are still live, by address: the set and the row in it.
    awaited: SeededMap<u64, Vec<(usize, usize)>>,
    /// Blocks whose use the recorder knows.
    pub(super) named: NamedBlocks,
    /// By stack.
    free_counts: Vec<FreeCounts>,
    /// By requested size, the backward runs whose blocks outlived them, with a number of such blocks. A run may come
    /// again.
    outlived_by_size: SeededMap<u64, Vec<(u32, u32)>>,
    /// By requested size, the maximum number of blocks that outlived the backward run that allocated them.
    pub(super) gradient_sizes: SeededMap<u64, u32>,
    /// By requested size, the maximum number of blocks that one backward pass allocated, recomputation aside.
    pub(super) computed_sizes: SeededMap<u64, u32>,
    /// The same for the current backward pass, whose number comes first.
    computed_in_pass: (u32, SeededMap<u64, u32>),
    /// Blocks of each forward pass, numbered by [`Phases::forwards_begun`].
    forward_passes: Vec<ForwardPass>,
    /// Requested sizes of blocks that PyTorch allocated for parameters.
    pub(super) parameter_sizes: SeededSet<u64>,
    /// Requested sizes of gathered parameters.
    gathered_sizes: BTreeSet<u64>,
    /// By stack: the memory of its line grows from iteration to iteration. Empty if no line grows.
    grows: Vec<bool>,
    /// The last failed request so far, or the last allocation once it has passed: frees after it are teardown.
    teardown_after: Option<u32>,
}

impl<'a> BlockLives<'a> {
    /// `stacks` is the number of stacks of the snapshot.
    fn new(phases: &'a Phases, stacks: usize) -> Self {
        let (mut passes, mut last_phase) = (0, Phase::Other);
        let run_counts = phases.runs().iter().map(|run| {
            // An optimizer may step during a backward pass, which then continues.
            passes += u32::from(run.phase == Phase::Backward && last_phase != Phase::Backward);
            last_phase = if run.phase == Phase::Optimizer { last_phase } else { run.phase };
            RunCounts { backward_passes: passes, ..RunCounts::default() }
        });
        Self {
            phases,
            forwards_begun: 0,
            has_stacks_of_frees: false,
            has_trace: true,
            starts_empty: true,
            run_counts: run_counts.collect(),
            live_sets: Vec::new(),
            awaited: SeededMap::default(),
            named: NamedBlocks::default(),
            free_counts: vec![FreeCounts::default(); stacks],
            outlived_by_size: SeededMap::default(),
            gradient_sizes: SeededMap::default(),
            teardown_after: None,
            computed_sizes: SeededMap::default(),
            computed_in_pass: (0, SeededMap::default()),
            forward_passes: vec![ForwardPass::default(); phases.forwards_begun(usize::MAX) + 1],
            parameter_sizes: SeededSet::default(),
            gathered_sizes: BTreeSet::new(),
            grows: Vec::new(),
        }
    }

    /// Reads `device`'s trace. Collects the live blocks after each entry in `wanted` (`None`: before the first).
    pub(super) fn from_trace(device: DeviceStudy<'a, '_>, mut wanted: Vec<Option<usize>>) -> Self {
        let (stacks, phases) = (device.stacks(), device.phases());
        let stack_count = device.snapshot().stacks.len();
        let mut lifetimes = Self::new(phases, stack_count);
        let Some(block_sizes) = device.block_sizes() else {
            lifetimes.add_snapshot(device);
            return lifetimes;
        };
        let growing = growing_lines(device);
        if !growing.is_empty() {
            let is_growing = |stack| growing.contains(&stacks.line_id(StackId::from_index(stack)));
            lifetimes.grows = (0..stack_count).map(is_growing).collect();
        }
        let mut live = open_initial_blocks(stacks, block_sizes);
        lifetimes.starts_empty = live.is_empty();
        let mut at = TracePoint { entry: 0, run: 0 };
        wanted.sort_unstable();
        wanted.dedup();
        let mut wanted = wanted.into_iter().peekable();
        if wanted.next_if_eq(&None).is_some() {
            lifetimes.add_live_set(None, at, &mut live);
        }
        let mut block_sizes = block_sizes.reader();
        let last_alloc = device.device().indexes_with_action(Action::Alloc).next_back();
        let mut just_freed = None;
        for index in 0..device.device().len() {
            let entry = device.device().entry(index);
            at.entry = to_u32(index);
            if phases.runs().get(at.run as usize).is_some_and(|next| next.start <= at.entry) {
                at.run += 1;
            }
            if phases.forward_starts().get(lifetimes.forwards_begun).is_some_and(|start| *start <= at.entry) {
                lifetimes.forwards_begun += 1;
            }
            match entry.action {
                Action::Alloc => {
                    if let Some(bytes) = block_sizes.allocated_bytes(at.entry, &entry) {
                        lifetimes.alloc(&entry, at, bytes, &mut live);
                    }
                }
                // Most frees complete at once.
                Action::FreeCompleted if just_freed == Some(entry.addr) => {}
                Action::FreeRequested | Action::FreeCompleted => lifetimes.free(&entry, at, &mut live),
                _ => {}
            }
            just_freed = (entry.action == Action::FreeRequested).then_some(entry.addr);
            for SizeChange { address, bytes } in block_sizes.changes(at.entry) {
                if let Some(block) = live.get_mut(&address) {
                    block.bytes_left = bytes;
                }
            }
            if wanted.next_if_eq(&Some(index)).is_some() {
                lifetimes.add_live_set(Some(index), at, &mut live);
            }
            if entry.action == Action::Oom || last_alloc.is_none_or(|last| last <= index) {
                lifetimes.teardown_after = Some(at.entry);
                for live_set in &mut lifetimes.live_sets {
                    live_set.observed_until = live_set.observed_until.or(Some(at));
                }
            }
        }
        lifetimes.finish(live.values(), at);
        let ends = live.iter().map(|(address, block)| (*address, block.allocated_at));
        lifetimes.named = NamedBlocks::new(device.snapshot(), ends);
        lifetimes
    }

    /// Without a trace, the blocks of the snapshot are the only live set.
    fn add_snapshot(&mut self, device: DeviceStudy<'a, '_>) {
        let mut live = open_initial_blocks(device.stacks(), &BlockSizes::at_snapshot(device.device()));
        (self.has_trace, self.starts_empty) = (false, live.is_empty());
        self.add_live_set(None, TracePoint { entry: 0, run: 0 }, &mut live);
        self.named = NamedBlocks::new(device.snapshot(), live.keys().map(|address| (*address, None)));
    }

    /// Adds the set of the live blocks after `entry`, which is at `point`.
    fn add_live_set(&mut self, entry: Option<usize>, point: TracePoint, live: &mut OpenBlocks) {
        let exist = live.iter_mut().filter(|(_, block)| block.bytes_left > 0);
        let mut blocks: Vec<LiveBlock> = exist
            .map(|(address, block)| {
                block.is_in_live_set = true;
                block.live_block(*address)
            })
            .collect();
        blocks.sort_unstable_by_key(|block| block.address);
        for (row, block) in blocks.iter().enumerate() {
            self.awaited.entry(block.address).or_default().push((self.live_sets.len(), row));
        }
        self.live_sets.push(LiveSet { entry, point, observed_until: None, blocks });
    }

    /// Counts the blocks that are live at the end of the trace.
    fn finish<'l>(&mut self, live: impl Iterator<Item = &'l OpenBlock>, at: TracePoint) {
        for block in live {
            // A block that outlives the next backward pass too is no gradient.
            if let Some(allocated_at) = block.allocated_at
                && self.backward_passes_at(allocated_at) == self.backward_passes_at(at)
            {
                self.count_outliving_pass(block, allocated_at, at, false);
            }
        }
        self.count_computed();
        for (requested, mut runs) in self.outlived_by_size.drain() {
            runs.sort_unstable();
            let by_run = runs.chunk_by(|(run, _), (next, _)| run == next);
            let most = by_run.map(|run| run.iter().map(|(_, blocks)| blocks).sum()).max();
            self.gradient_sizes.extend(most.map(|most| (requested, most)));
        }
    }

    /// `entry` allocates a block of `bytes`.
    fn alloc(&mut self, entry: &TraceEntry, at: TracePoint, bytes: u64, live: &mut OpenBlocks) {
        if let Some(run) = self.counts_at_mut(at) {
            (run.last_alloc, run.freed_at_end) = (at.entry, 0);
        }
        let requested_bytes = entry.size;
        let new = OpenBlock::new(entry, bytes, at, self.forwards_begun);
        let traits = self.phases.stack_traits(entry.stack);
        self.count_alloc(at, requested_bytes, traits);
        match traits.purpose {
            Some(KnownPurpose::Parameters) => {
                self.parameter_sizes.insert(requested_bytes);
            }
            Some(KnownPurpose::GatheredParameters) => {
                self.gathered_sizes.insert(requested_bytes);
            }
            _ => {}
        }
        if let Some(lost) = live.insert(entry.addr, new)
            && let Some(new) = live.get_mut(&entry.addr)
        {
            new.is_in_live_set = lost.is_in_live_set;
        }
    }

    /// `entry` frees a block, or completes a free.
    fn free(&mut self, entry: &TraceEntry, at: TracePoint, live: &mut OpenBlocks) {
        let Some(block) = live.remove(&entry.addr) else {
            return; // the second entry of a free, or a free of an unknown block
        };
        // Recorded with `context="alloc"`, a free has the stack of the allocation, which says nothing of the free.
        let is_own = entry.stack != block.stack || block.allocated_at.is_some_and(|allocated| allocated.run == at.run);
        let traits = if is_own { self.phases.stack_traits(entry.stack) } else { StackTraits::default() };
        self.has_stacks_of_frees |= traits.caller.is_some() && entry.stack != block.stack;
        let by_program = is_run_by_program(traits);
        if let Some(allocated_at) = block.allocated_at {
            self.count_free(&block, allocated_at, at, by_program);
        }
        if !block.is_in_live_set {
            return;
        }
        for (set, row) in self.awaited.remove(&entry.addr).unwrap_or_default() {
            let live_set = &mut self.live_sets[set];
            if live_set.observed_until.is_none() {
                let block = &mut live_set.blocks[row];
                block.freed_at = Some(at);
                block.freed_by = traits;
            }
        }
    }

    fn count_free(&mut self, block: &OpenBlock, allocated_at: TracePoint, freed: TracePoint, by_program: bool) {
        if self.teardown_after.is_some_and(|since| allocated_at.entry <= since) {
            return; // teardown
        }
        let forward = block.forwards_begun;
        self.count_outliving_pass(block, allocated_at, freed, by_program);
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
            && self.parameter_sizes.contains(&block.requested_bytes)
            && let Some(run) = self.counts_at_mut(allocated_at)
        {
            run.freed_at_end = run.freed_at_end.saturating_add(block.requested_bytes);
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

    /// Counts an allocation of a forward or a backward pass.
    fn count_alloc(&mut self, at: TracePoint, requested_bytes: u64, traits: StackTraits) {
        match self.phase(at) {
            Phase::Backward if !traits.has_forward_frame => {
                let pass = self.backward_passes_at(at);
                if self.computed_in_pass.0 != pass {
                    self.count_computed();
                    self.computed_in_pass.0 = pass;
                }
                *self.computed_in_pass.1.entry(requested_bytes).or_default() += 1;
            }
            Phase::Forward => {
                self.forward_passes[self.forwards_begun]
                    .count(traits.has_forward_frame, |counts| &mut counts.allocated);
            }
            _ => {}
        }
    }

    /// Ends the current backward pass.
    fn count_computed(&mut self) {
        for (requested, blocks) in self.computed_in_pass.1.drain() {
            let most = self.computed_sizes.entry(requested).or_default();
            *most = blocks.max(*most);
        }
    }

    /// Counts `block` if a backward run allocated it, and it was live at `end`, after that run.
    fn count_outliving_pass(&mut self, block: &OpenBlock, allocated_at: TracePoint, end: TracePoint, by_program: bool) {
        if self.phase(allocated_at) == Phase::Backward && (allocated_at.run != end.run || by_program) {
            let runs = self.outlived_by_size.entry(block.requested_bytes).or_default();
            match runs.last_mut().filter(|(last, _)| *last == allocated_at.run) {
                Some((_, blocks)) => *blocks += 1,
                None => runs.push((allocated_at.run, 1)),
            }
            let is_left = by_program || self.phase(end) != Phase::Backward;
            let Some(run) = self.counts_at_mut(allocated_at) else { return }; // the phase is that of a run
            run.outlived_bytes = run.outlived_bytes.saturating_add(block.requested_bytes);
            if is_left {
                run.left_for_optimizer = run.left_for_optimizer.saturating_add(block.requested_bytes);
            }
        }
    }

    /// Whether the memory of the line of `stack` grows from iteration to iteration.
    pub(super) fn grows(&self, stack: StackId) -> bool {
        self.grows.get(stack.index()).copied().unwrap_or(false)
    }

    pub(super) fn free_counts(&self, stack: StackId) -> FreeCounts {
        self.free_counts[stack.index()]
    }

    pub(super) fn point(&self, entry: usize) -> TracePoint {
        let run = self.phases.runs().partition_point(|run| run.start as usize <= entry);
        TracePoint { entry: to_u32(entry), run: to_u32(run) }
    }

    pub(super) fn phase(&self, point: TracePoint) -> Phase {
        point.run_index().map_or(Phase::Other, |run| self.phases.runs()[run].phase)
    }

    /// Whether the run of `point` may have ended before it: it allocated nothing more, and frees have no stacks.
    pub(super) fn may_have_ended(&self, point: TracePoint) -> bool {
        !self.has_stacks_of_frees && self.is_after_last_allocation(point)
    }

    /// Whether the forward pass of `point` kept what a backward pass needs.
    pub(super) fn keeps_graph(&self, point: TracePoint) -> bool {
        self.forward_pass(point).keeps_graph()
    }

    /// The forward pass of `point`.
    pub(super) fn forward_pass(&self, point: TracePoint) -> ForwardPass {
        self.forward_passes[self.phases.forwards_begun(point.entry as usize)]
    }

    /// The forward pass before that of `point`.
    pub(super) fn forward_pass_before(&self, point: TracePoint) -> Option<ForwardPass> {
        let pass = self.phases.forwards_begun(point.entry as usize).checked_sub(1);
        pass.filter(|pass| *pass > 0).map(|pass| self.forward_passes[pass])
    }

    /// The first forward pass that starts after `point`.
    pub(super) fn forward_pass_after(&self, point: TracePoint) -> Option<ForwardPass> {
        self.forward_passes.get(self.phases.forwards_begun(point.entry as usize) + 1).copied()
    }

    /// Whether gradients have this requested size: backward passes leave or compute blocks of this size.
    pub(super) fn is_gradient_size(&self, requested_bytes: u64) -> bool {
        self.gradient_sizes.contains_key(&requested_bytes) || self.computed_sizes.contains_key(&requested_bytes)
    }

    /// Whether a parameter may be larger than `requested_bytes`, or as large.
    pub(super) fn is_within_largest_gradient(&self, requested_bytes: u64) -> bool {
        self.gradient_sizes.keys().any(|size| *size >= requested_bytes)
    }

    pub(super) fn has_backward(&self) -> bool {
        self.run_counts.last().is_some_and(|run| run.backward_passes > 0)
    }

    /// Maximum number of bytes that a backward pass left for later code.
    pub(super) fn max_left_for_optimizer(&self) -> u64 {
        self.run_counts.iter().map(|run| run.left_for_optimizer).max().unwrap_or(0)
    }

    /// Evidence that parameters of `bytes`, in full or half precision, were gathered for a pass, with or without
    /// padding.
    pub(super) fn gather_evidence(&self, bytes: u64) -> GatherEvidence {
        let max_padded = bytes.saturating_add(bytes / MAX_PADDING_FRACTION);
        let is_parameter = |bytes: Option<u64>| bytes.is_some_and(|bytes| self.parameter_sizes.contains(&bytes));
        match self.gathered_sizes.range(bytes..=max_padded).next() {
            Some(size) if *size == bytes => GatherEvidence::Yes,
            Some(_) if is_parameter(Some(bytes)) || is_parameter(bytes.checked_mul(2)) => GatherEvidence::Yes,
            Some(_) => GatherEvidence::Possible,
            None => GatherEvidence::No,
        }
    }

    /// Whether `point` is after the last allocation of its run.
    pub(super) fn is_after_last_allocation(&self, point: TracePoint) -> bool {
        self.counts_at(point).is_some_and(|run| run.last_alloc < point.entry)
    }

    /// Whether a backward pass completed within the recording.
    pub(super) fn completes_backward(&self) -> bool {
        // The last run may be incomplete.
        self.run_counts.iter().rev().nth(1).is_some_and(|run| run.backward_passes > 0)
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

    /// The counts of the run of `point`.
    pub(super) fn counts_at(&self, point: TracePoint) -> Option<&RunCounts> {
        self.run_counts.get(point.run_index()?)
    }

    fn counts_at_mut(&mut self, point: TracePoint) -> Option<&mut RunCounts> {
        self.run_counts.get_mut(point.run_index()?)
    }
}
