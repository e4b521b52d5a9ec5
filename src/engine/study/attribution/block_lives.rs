//! Collects block lifetimes: in one pass over the trace, when each block ends and statistics of all blocks by stack and
//! by phase run; after a replay, the live blocks of some positions with their allocation and free.

use std::collections::BTreeSet;

use super::block_ends::BlockEnds;
use super::forward_pass::{ForwardPass, FreeCounts, OutlivedBytes, RunCounts, count_passes};
use super::leaks::growing_lines;
use super::live_set::{
    Allocation, LiveBlock, LiveSet, OpenBlock, OpenBlocks, TracePoint, is_run_by_program, traits_of_free,
};
use super::named::NamedBlocks;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::snapshot::{Action, TraceEntry};
use crate::stacks::phases::{KnownPurpose, Phase, Phases, StackTraits};
use crate::study::DeviceStudy;
use crate::study::block_sizes::BlockSizes;

/// Evidence that parameters of some size were gathered for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GatherEvidence {
    Yes,
    Possible,
    No,
}

/// Padding of shards to equal size is at most the gathered size divided by this.
const MAX_PADDING_FRACTION: u64 = 8;

/// Block lifetimes of one trace. Runs are numbered as in `TracePoint::run`.
pub struct BlockLives<'a> {
    pub(super) phases: &'a Phases,
    /// By run.
    run_counts: Vec<RunCounts>,
    /// The first is that of all runs but backward runs: see [`RunCounts::outlived`].
    outlived: Vec<OutlivedBytes>,
    /// See [`Self::freed_at_end`]: by run, ascending.
    freed_at_end: Vec<(u32, u64)>,
    /// Number of forward passes that have started: see [`Phases::forwards_begun`].
    forwards_begun: usize,
    /// Frees have stacks, so user code that frees is known.
    has_stacks_of_frees: bool,
    /// False for a snapshot without a trace, whose only live set is its own.
    pub(super) has_trace: bool,
    /// The trace starts with an empty allocator.
    pub(super) starts_empty: bool,
    pub(super) live_sets: Vec<LiveSet>,
    ends: BlockEnds,
    /// The block sizes that a replay inferred, if the trace contradicts itself.
    contradicted: Option<&'a BlockSizes>,
    /// The entries of failed requests.
    pub(super) failed: Vec<usize>,
    last_alloc: Option<usize>,
    /// Blocks whose use the recorder knows.
    pub(super) named: NamedBlocks,
    /// By stack.
    free_counts: Vec<FreeCounts>,
    /// By requested size: backward runs that blocks outlived, each with the number of these blocks. A run may occur several
    /// times.
    outlived_by_size: SeededMap<u64, Vec<(u32, u32)>>,
    /// By requested size, the maximum number of blocks that outlived the backward run that allocated them.
    pub(super) gradient_sizes: SeededMap<u64, u32>,
    /// By requested size, the maximum number of blocks that one backward pass allocated, recomputation aside.
    pub(super) computed_sizes: SeededMap<u64, u32>,
    /// The number of the current backward pass, and the same counts for it.
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
    fn new(device: DeviceStudy<'a, '_>) -> Self {
        let (phases, trace) = (device.phases(), device.device());
        let (run_counts, outlived) = count_passes(phases.runs());
        Self {
            phases,
            forwards_begun: 0,
            has_stacks_of_frees: false,
            has_trace: true,
            starts_empty: true,
            run_counts,
            outlived,
            freed_at_end: Vec::new(),
            live_sets: Vec::new(),
            ends: BlockEnds::with_room(trace.len()),
            contradicted: device.contradicted_sizes(),
            failed: trace.failed_requests().collect(),
            last_alloc: trace.indexes_with_action(Action::Alloc).next_back(),
            named: NamedBlocks::default(),
            free_counts: vec![FreeCounts::default(); device.snapshot().stacks.len()],
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

    /// Reads `device`'s trace. No replay is needed: one that shows contradictions makes `with_live_sets` read it
    /// again.
    pub fn from_trace(device: DeviceStudy<'a, '_>) -> Self {
        let (phases, trace) = (device.phases(), device.device());
        let mut lifetimes = Self::new(device);
        let sizes = lifetimes.contradicted;
        let mut missing = sizes.into_iter().flat_map(BlockSizes::missing_blocks).peekable();
        let older = sizes.map(|sizes| sizes.initial.iter().map(|block| block.addr).collect());
        let mut live = OpenBlocks { older, ..OpenBlocks::default() };
        let mut at = TracePoint::START;
        let mut just_freed = None;
        for index in 0..trace.len() {
            let entry = trace.entry(index);
            at.entry = to_u32(index);
            if phases.runs().get(at.run as usize).is_some_and(|next| next.start <= at.entry) {
                at.run += 1;
            }
            if phases.forward_starts().get(lifetimes.forwards_begun).is_some_and(|start| *start <= at.entry) {
                lifetimes.forwards_begun += 1;
            }
            let is_alloc = entry.action == Action::Alloc && missing.next_if_eq(&at.entry).is_none();
            lifetimes.ends.add_entry(is_alloc);
            match entry.action {
                Action::Alloc if is_alloc => lifetimes.alloc(&entry, at, &mut live),
                // Most frees complete at once.
                Action::FreeCompleted if just_freed == Some(entry.addr) => {}
                Action::FreeRequested | Action::FreeCompleted => lifetimes.free(&entry, at, &mut live),
                _ => {}
            }
            just_freed = (entry.action == Action::FreeRequested).then_some(entry.addr);
            if entry.action == Action::Oom || lifetimes.last_alloc.is_none_or(|last| last <= index) {
                lifetimes.teardown_after = Some(at.entry);
            }
        }
        lifetimes.finish(live.by_address.values(), at);
        lifetimes
    }

    /// Adds what takes a replay: the live blocks after each entry in `wanted` (`None`: before the first). Without a trace,
    /// the blocks of the snapshot are the only live set.
    #[must_use]
    pub fn with_live_sets(mut self, device: DeviceStudy<'a, '_>, mut wanted: Vec<Option<usize>>) -> Self {
        let (trace, stacks) = (device.device(), device.stacks());
        let Some(sizes) = device.block_sizes() else {
            let sizes = BlockSizes::at_snapshot(trace);
            (self.has_trace, self.starts_empty) = (false, sizes.initial.is_empty());
            self.named = NamedBlocks::new(device.snapshot(), sizes.initial.iter().map(|block| (block.addr, None)));
            self.live_sets = vec![self.live_set(device, &sizes, None)];
            return self;
        };
        if self.contradicted.is_none() && device.contradicted_sizes().is_some() {
            self = Self::from_trace(device);
        }
        let growing = growing_lines(device);
        if !growing.is_empty() {
            self.grows = (0..device.snapshot().stacks.len())
                .map(|stack| growing.contains(&stacks.line_id(StackId::from_index(stack))))
                .collect();
        }
        self.starts_empty = sizes.initial.is_empty();
        let ends =
            sizes.initial.iter().filter_map(|block| Some((trace.entry(self.ends.older(block.addr)?), block.context)));
        let mut frees = ends
            .filter(|(entry, made_by)| entry.action != Action::Alloc && entry.stack != stacks.recorded_stack(*made_by));
        self.has_stacks_of_frees |= frees.any(|(free, _)| self.phases.stack_traits(free.stack).caller.is_some());
        wanted.retain(|entry| entry.is_none_or(|entry| entry < trace.len()));
        wanted.sort_unstable();
        wanted.dedup();
        self.live_sets = wanted.into_iter().map(|entry| self.live_set(device, sizes, entry)).collect();
        let at_end = self.ends.live_after(trace, sizes, trace.len());
        let at_end = at_end.map(|block| (block.address, block.allocated_at.map(|entry| self.point(entry as usize))));
        self.named = NamedBlocks::new(device.snapshot(), at_end);
        self.ends = BlockEnds::default(); // no other position is wanted, and a long trace has a large table
        self
    }

    /// The live blocks after `entry`.
    fn live_set(&self, device: DeviceStudy<'a, '_>, sizes: &BlockSizes, entry: Option<usize>) -> LiveSet {
        let (applied, until) = (entry.map_or(0, |entry| entry + 1), self.observed_until(entry));
        let live = self.ends.live_after(device.device(), sizes, applied);
        let mut blocks: Vec<LiveBlock> = live.map(|block| self.live_block(device, &block, until)).collect();
        blocks.sort_unstable_by_key(|block| block.address);
        for (changed_at, change) in sizes.changes_until(applied) {
            if let Ok(row) = blocks.binary_search_by_key(&change.address, |block| block.address)
                && blocks[row].allocated_at.is_none_or(|allocated_at| allocated_at.entry <= *changed_at)
            {
                blocks[row].bytes = change.bytes;
            }
        }
        blocks.retain(|block| block.bytes > 0);
        let point = entry.map_or(TracePoint::START, |entry| self.point(entry));
        LiveSet { entry, point, observed_until: if self.has_trace { self.point(until) } else { point }, blocks }
    }

    /// `allocation` as a live block, ignoring frees after entry `until`.
    pub(super) fn live_block(&self, device: DeviceStudy<'_, '_>, allocation: &Allocation, until: usize) -> LiveBlock {
        let freed = allocation.freed_after.and_then(|freed| freed.checked_sub(1)).map(|freed| freed as usize);
        let freed = freed.filter(|freed| *freed <= until);
        let stack = device.stacks().recorded_stack(allocation.extended_stack);
        let [allocated_at, freed_at] = [allocation.allocated_at.map(|entry| entry as usize), freed]
            .map(|entry| entry.map(|entry| self.point(entry)));
        let is_in_run = allocated_at.zip(freed_at).is_some_and(|(allocated, freed)| allocated.run == freed.run);
        let freed_by = freed.and_then(|freed| device.device().stack(freed));
        LiveBlock {
            address: allocation.address,
            bytes: allocation.bytes,
            requested_bytes: allocation.requested_bytes,
            stack,
            extended_stack: allocation.extended_stack,
            allocated_at,
            freed_at,
            freed_by: freed_by.map(|by| traits_of_free(self.phases, by, stack, is_in_run)).unwrap_or_default(),
        }
    }

    /// [`LiveSet::observed_until`] for the live blocks after `entry`.
    pub(super) fn observed_until(&self, entry: Option<usize>) -> usize {
        let now = entry.unwrap_or(0); // the start of the trace
        let last = self.last_alloc.map_or(now, |last| last.max(now));
        let failed = self.failed.partition_point(|failed| *failed < now);
        self.failed.get(failed).map_or(last, |failed| last.min(*failed))
    }

    /// Counts the blocks that are live at the end of the trace.
    fn finish<'l>(&mut self, live: impl Iterator<Item = &'l OpenBlock>, at: TracePoint) {
        for block in live {
            // A block that also outlives the next backward pass is no gradient.
            if self.backward_passes_at(block.allocated_at) == self.backward_passes_at(at) {
                self.count_outliving_pass(block, at, false);
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

    /// `entry` allocates a block.
    fn alloc(&mut self, entry: &TraceEntry, at: TracePoint, live: &mut OpenBlocks) {
        if let Some(run) = at.run_index().and_then(|run| self.run_counts.get_mut(run)) {
            run.last_alloc = at.entry;
        }
        self.freed_at_end.pop_if(|(run, _)| *run == at.run);
        let TraceEntry { addr, size: requested_bytes, stack, .. } = *entry;
        let traits = self.phases.stack_traits(stack);
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
        let new = OpenBlock { requested_bytes, stack, allocated_at: at, forwards_begun: to_u32(self.forwards_begun) };
        if let Some(lost) = live.by_address.insert(addr, new) {
            self.ends.set(lost.allocated_at.entry, at.entry);
        }
        if live.remove_older(addr) {
            self.ends.set_older(addr, at.entry);
        }
    }

    /// `entry` frees a block, or completes a free.
    fn free(&mut self, entry: &TraceEntry, at: TracePoint, live: &mut OpenBlocks) {
        let Some(block) = live.by_address.remove(&entry.addr) else {
            // The second entry of a free, or the free of a block that is older than the trace or unknown.
            if live.older.is_none() || live.remove_older(entry.addr) {
                self.ends.set_older(entry.addr, at.entry);
            }
            return;
        };
        self.ends.set(block.allocated_at.entry, at.entry);
        self.has_stacks_of_frees |=
            entry.stack != block.stack && self.phases.stack_traits(entry.stack).caller.is_some();
        let freed_by = traits_of_free(self.phases, entry.stack, block.stack, block.allocated_at.run == at.run);
        self.count_free(&block, at, is_run_by_program(freed_by));
    }

    fn count_free(&mut self, block: &OpenBlock, freed: TracePoint, by_program: bool) {
        let allocated_at = block.allocated_at;
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
            && self.parameter_sizes.contains(&block.requested_bytes)
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
    fn count_outliving_pass(&mut self, block: &OpenBlock, end: TracePoint, by_program: bool) {
        let allocated_at = block.allocated_at;
        if self.phase(allocated_at) == Phase::Backward && (allocated_at.run != end.run || by_program) {
            let runs = self.outlived_by_size.entry(block.requested_bytes).or_default();
            match runs.last_mut().filter(|(last, _)| *last == allocated_at.run) {
                Some((_, blocks)) => *blocks += 1,
                None => runs.push((allocated_at.run, 1)),
            }
            let is_left = by_program || self.phase(end) != Phase::Backward;
            let row = self.counts_at(allocated_at).map_or(0, |run| run.outlived);
            self.outlived[row as usize].add(block.requested_bytes, is_left);
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
        TracePoint { entry: to_u32(entry), run: to_u32(self.phases.runs_begun(entry)) }
    }

    pub(super) fn phase(&self, point: TracePoint) -> Phase {
        point.run_index().map_or(Phase::Other, |run| self.phases.runs()[run].phase)
    }

    /// Whether the run of `point` may already be over: it allocates nothing more, and frees have no stacks.
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

    /// Whether some gradient has at least `requested_bytes`.
    pub(super) fn is_within_largest_gradient(&self, requested_bytes: u64) -> bool {
        self.gradient_sizes.keys().any(|size| *size >= requested_bytes)
    }

    pub(super) fn has_backward(&self) -> bool {
        self.run_counts.last().is_some_and(|run| run.backward_passes > 0)
    }

    /// Maximum number of bytes that a backward pass left for later code.
    pub(super) fn max_left_for_optimizer(&self) -> u64 {
        self.outlived.iter().map(|run| run.left_for_optimizer).max().unwrap_or(0)
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

    /// Bytes that outlived the run of `point`, if it is a backward run.
    pub(super) fn outlived_bytes(&self, point: TracePoint) -> u64 {
        self.counts_at(point).map_or(0, |run| self.outlived[run.outlived as usize].all)
    }

    /// Bytes with parameter sizes that the backward run of `point` allocated, and freed after its last allocation.
    pub(super) fn freed_at_end(&self, point: TracePoint) -> u64 {
        self.freed_at_end.binary_search_by_key(&point.run, |(run, _)| *run).map_or(0, |at| self.freed_at_end[at].1)
    }

    fn counts_at(&self, point: TracePoint) -> Option<&RunCounts> {
        self.run_counts.get(point.run_index()?)
    }
}
