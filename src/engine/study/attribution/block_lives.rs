//! Collects block lifetimes: in one pass over the trace, when each block ends, with counts of all blocks; after a replay,
//! the live blocks of some positions with their allocation and free.

use super::block_ends::BlockEnds;
use super::leaks::growing_lines;
use super::live_set::{Allocation, LiveBlock, LiveSet, OpenBlocks, TracePoint, traits_of_free};
use super::named::NamedBlocks;
use super::trace_counts::TraceCounts;
use crate::base::ids::{StackId, to_u32};
use crate::snapshot::{Action, TraceEntry};
use crate::study::DeviceStudy;
use crate::study::block_sizes::BlockSizes;

/// Block lifetimes of one trace.
pub struct BlockLives<'a> {
    pub(super) counts: TraceCounts<'a>,
    /// The entries of failed requests.
    pub(super) failed: Vec<usize>,
    last_alloc: Option<usize>,
    /// False for a snapshot without a trace, whose only live set is its own.
    pub(super) has_trace: bool,
    /// The trace starts with an empty allocator.
    pub(super) starts_empty: bool,
    ends: BlockEnds,
    /// The block sizes that a replay inferred, if the trace contradicts itself.
    contradicted: Option<&'a BlockSizes>,
    pub(super) live_sets: Vec<LiveSet>,
    /// Blocks whose use the recorder knows.
    pub(super) named: NamedBlocks,
    /// By stack: the memory of its line grows from iteration to iteration. Empty if no line grows.
    grows: Vec<bool>,
}

impl<'a> BlockLives<'a> {
    /// Reads `device`'s trace. No replay is needed: one that shows contradictions makes `with_live_sets` read it
    /// again.
    pub fn from_trace(device: DeviceStudy<'a, '_>) -> Self {
        let trace = device.device();
        let sizes = device.contradicted_sizes();
        let mut lifetimes = Self {
            counts: TraceCounts::new(device),
            failed: trace.failed_requests().collect(),
            last_alloc: trace.indexes_with_action(Action::Alloc).next_back(),
            has_trace: true,
            starts_empty: true,
            ends: BlockEnds::with_room(trace.len()),
            contradicted: sizes,
            live_sets: Vec::new(),
            named: NamedBlocks::default(),
            grows: Vec::new(),
        };
        let mut missing = sizes.into_iter().flat_map(BlockSizes::missing_blocks).peekable();
        let older = sizes.map(|sizes| sizes.initial.iter().map(|block| block.addr).collect());
        let mut live = OpenBlocks { older, ..OpenBlocks::default() };
        let mut at = TracePoint::START;
        let mut just_freed = None;
        for index in 0..trace.len() {
            let entry = trace.entry(index);
            lifetimes.counts.advance(&mut at, to_u32(index));
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
                lifetimes.counts.teardown_after = Some(at.entry);
            }
        }
        lifetimes.counts.finish(live.by_address.values(), at);
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
        self.counts.has_stacks_of_frees |=
            frees.any(|(free, _)| self.counts.phases.stack_traits(free.stack).caller.is_some());
        wanted.retain(|entry| entry.is_none_or(|entry| entry < trace.len()));
        wanted.sort_unstable();
        wanted.dedup();
        self.live_sets = wanted.into_iter().map(|entry| self.live_set(device, sizes, entry)).collect();
        let at_end = self.ends.live_after(trace, sizes, trace.len());
        let at_end =
            at_end.map(|block| (block.address, block.allocated_at.map(|entry| self.counts.point(entry as usize))));
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
        let point = entry.map_or(TracePoint::START, |entry| self.counts.point(entry));
        LiveSet { entry, point, observed_until: if self.has_trace { self.counts.point(until) } else { point }, blocks }
    }

    /// `allocation` as a live block, ignoring frees after entry `until`.
    pub(super) fn live_block(&self, device: DeviceStudy<'_, '_>, allocation: &Allocation, until: usize) -> LiveBlock {
        let freed = allocation.freed_after.and_then(|freed| freed.checked_sub(1)).map(|freed| freed as usize);
        let freed = freed.filter(|freed| *freed <= until);
        let stack = device.stacks().recorded_stack(allocation.extended_stack);
        let [allocated_at, freed_at] = [allocation.allocated_at.map(|entry| entry as usize), freed]
            .map(|entry| entry.map(|entry| self.counts.point(entry)));
        let is_in_run = allocated_at.zip(freed_at).is_some_and(|(allocated, freed)| allocated.run == freed.run);
        let freed_by = freed.and_then(|freed| device.device().stack(freed));
        let freed_by = freed_by.map(|by| traits_of_free(self.counts.phases, by, stack, is_in_run)).unwrap_or_default();
        let Allocation { address, bytes, requested_bytes, extended_stack, .. } = *allocation;
        LiveBlock { address, bytes, requested_bytes, stack, extended_stack, allocated_at, freed_at, freed_by }
    }

    /// [`LiveSet::observed_until`] for the live blocks after `entry`.
    pub(super) fn observed_until(&self, entry: Option<usize>) -> usize {
        let now = entry.unwrap_or(0); // the start of the trace
        let last = self.last_alloc.map_or(now, |last| last.max(now));
        let failed = self.failed.partition_point(|failed| *failed < now);
        self.failed.get(failed).map_or(last, |failed| last.min(*failed))
    }

    /// Whether the memory of the line of `stack` grows from iteration to iteration.
    pub(super) fn grows(&self, stack: StackId) -> bool {
        self.grows.get(stack.index()).copied().unwrap_or(false)
    }

    /// `entry` allocates a block.
    fn alloc(&mut self, entry: &TraceEntry, at: TracePoint, live: &mut OpenBlocks) {
        let new = self.counts.alloc(at, entry.size, entry.stack);
        if let Some(lost) = live.by_address.insert(entry.addr, new) {
            self.ends.set(lost.allocated_at.entry, at.entry);
        }
        if live.remove_older(entry.addr) {
            self.ends.set_older(entry.addr, at.entry);
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
        self.counts.free(&block, entry.stack, at);
    }
}
