//! The lifetime of every allocation and every range of device memory in a recording.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::base::intern::{Distinct, SeededMap};
use crate::base::threads;
use crate::replay::literal::{Change, Layout, ReplayStep, StreamPool, Tracking};
use crate::snapshot::{Action, Block, BlockState, Segment, TraceEntry};
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::attribution::{self, BlockLives, Category, Confidence};

/// A position in the trace: the number of entries applied. 0 is before the first entry.
pub type EntryCount = u32;

const NEVER: EntryCount = EntryCount::MAX;

/// An allocation and its lifetime. A trace has millions: one takes 32 bytes, as what many have in common is an
/// [`AllocationKind`].
#[derive(Debug, Clone, Copy)]
pub struct AllocationLifetime {
    /// 0 if it is older than the trace.
    pub start: EntryCount,
    freed_at: EntryCount,
    reusable_at: EntryCount,
    pub address: u64,
    pub made_by: StackId,
    /// Index into the kinds of [`MemoryLifetimes`].
    kind: u32,
    pub category: Category,
    pub confidence: Confidence,
    /// The phase that allocated it; `None` if it is older than the trace.
    pub phase: Option<Phase>,
    /// It is live at the snapshot.
    is_kept: bool,
}

/// The sizes and the place of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocationKind {
    pub bytes: u64,
    pub requested_bytes: u64,
    /// Index into [`MemoryLifetimes::places`].
    pub place: u32,
}

/// A range of reserved device memory: a segment, or a mapped part of an expandable segment.
#[derive(Debug, Clone, Copy)]
pub struct SegmentRange {
    pub start: EntryCount,
    pub end: Option<EntryCount>,
    pub address: u64,
    pub bytes: u64,
    pub made_by: StackId,
    /// Index into [`MemoryLifetimes::places`].
    pub place: u32,
    pub is_expandable: bool,
}

/// A pool's blocks of one stream and size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolStream {
    pub pool: PoolId,
    pub stream: u64,
    pub is_small: bool,
}

/// All lifetimes on one device.
#[derive(Debug, Clone, Default)]
pub struct MemoryLifetimes {
    /// By ascending `start`.
    pub allocations: Vec<AllocationLifetime>,
    /// By ascending `start`. Adjacent ranges of one expandable segment are not joined.
    pub segments: Vec<SegmentRange>,
    pub places: Distinct<PoolStream>,
    kinds: Distinct<AllocationKind>,
    /// The last text that the program attached to an allocation, by its start and address.
    annotations: SeededMap<(EntryCount, u64), SymbolId>,
    /// Indexes of live allocations, by address.
    live: SeededMap<u64, u32>,
    /// Indexes of reserved ranges, by address.
    held: BTreeMap<u64, u32>,
}

impl MemoryLifetimes {
    /// Replays `device`'s trace; without a trace, takes the blocks and segments of the snapshot.
    pub fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        let mut lives = Self::default();
        // The replay and what the stacks show need nothing of each other: two cores share them.
        let (_, lifetimes) = threads::join(
            || device.replay(Tracking::Changes, |step| lives.add_step(step, device)).is_some(),
            || {
                device.read_stacks();
                BlockLives::from_trace(device)
            },
        );
        lives.finish(device, &lifetimes.with_live_sets(device, Vec::new()))
    }

    /// Adds what a step of a replay with [`Tracking::Changes`] shows.
    pub fn add_step(&mut self, step: &ReplayStep<'_>, device: DeviceStudy<'_, '_>) {
        match step.at {
            None => {
                *self = Self::default(); // a replay may start over
                let layout = Layout::from_tiling(step.tiling, device.id());
                self.begin(layout.segments.iter(), &layout.blocks);
            }
            Some((index, _)) => {
                let entry = device.device().entry(index);
                self.apply(to_u32(index).saturating_add(1), &entry, step);
                self.annotate(&entry);
            }
        }
    }

    /// Adds what takes all steps, and the `lifetimes` of the device after its replay.
    #[must_use]
    pub fn finish(mut self, device: DeviceStudy<'_, '_>, lifetimes: &BlockLives<'_>) -> Self {
        if device.device().is_empty() {
            self.begin(device.device().segments(), &device.snapshot().blocks);
        } else {
            self.classify(device, lifetimes);
        }
        self
    }

    /// The sizes and the place of `one`.
    #[inline]
    pub fn kind_of(&self, one: &AllocationLifetime) -> &AllocationKind {
        &self.kinds.all[one.kind as usize]
    }

    /// The last text that the program attached to `one` (`torch.cuda.memory._annotate_tensor`).
    pub fn annotation(&self, one: &AllocationLifetime) -> Option<SymbolId> {
        self.annotations.get(&(one.start, one.address)).copied()
    }

    /// Sets the category and phase of every allocation.
    fn classify(&mut self, device: DeviceStudy<'_, '_>, lifetimes: &BlockLives<'_>) {
        let judged = attribution::classify_allocations(device, lifetimes, self.allocations.len(), &|row: usize| {
            let one = &self.allocations[row];
            let AllocationKind { bytes, requested_bytes, .. } = *self.kind_of(one);
            attribution::Allocation {
                address: one.address,
                bytes,
                requested_bytes,
                extended_stack: one.made_by,
                allocated_at: one.start.checked_sub(1),
                freed_after: one.freed_at(),
            }
        });
        for (one, judged) in self.allocations.iter_mut().zip(judged) {
            (one.category, one.confidence) = judged;
            one.phase = one.start.checked_sub(1).map(|entry| device.phases().phase_at(entry as usize));
        }
    }

    /// Attaches the text of an `annotate` entry to the allocation at its address.
    fn annotate(&mut self, entry: &TraceEntry) {
        let text = entry.user_metadata.filter(|_| entry.action == Action::Other && entry.addr > 0);
        if let Some((text, row)) = text.and_then(|text| Some((text, self.live.get(&entry.addr)?))) {
            self.annotations.insert((self.allocations[*row as usize].start, entry.addr), text);
        }
    }

    /// Adds the memory that exists before the first entry.
    fn begin<'s>(&mut self, segments: impl Iterator<Item = &'s Segment>, blocks: &[Block]) {
        for segment in segments {
            let Segment { pool, stream, is_small, is_expandable, .. } = *segment;
            let place = self.places.add(PoolStream { pool, stream, is_small });
            let (address, bytes, made_by) = (segment.address, segment.total_size, segment.stack);
            self.add_segment(SegmentRange { start: 0, end: None, address, bytes, made_by, place, is_expandable });
            for block in segment.blocks_in(blocks).iter().filter(|block| block.state != BlockState::Inactive) {
                let (bytes, requested_bytes) = (block.size, block.requested_size.min(block.size));
                let kind = AllocationKind { bytes, requested_bytes, place };
                self.add_allocation(block.address, 0, kind, block.extended_stack);
                if let (BlockState::ActivePendingFree, Some(added)) = (block.state, self.allocations.last_mut()) {
                    added.free(0);
                }
            }
        }
    }

    /// Applies the changes of `entry`.
    fn apply(&mut self, now: EntryCount, entry: &TraceEntry, step: &ReplayStep<'_>) {
        let alloc = (entry.action == Action::Alloc).then_some(entry.addr);
        for change in step.tiling.changes() {
            match *change {
                Change::Added(tile) => {
                    let (place, made_by) = (self.place_of(step, tile.stream_pool), entry.extended_stack);
                    let (address, bytes, is_expandable) = (tile.addr, tile.size, tile.is_expandable);
                    self.add_segment(SegmentRange {
                        start: now,
                        end: None,
                        address,
                        bytes,
                        made_by,
                        place,
                        is_expandable,
                    });
                }
                Change::Removed(address, bytes) => self.remove_segment(address, bytes, now),
                Change::Block(address) => self.block(address, now, alloc == Some(address), step),
            }
        }
    }

    fn place_of(&mut self, step: &ReplayStep<'_>, stream_pool: u32) -> u32 {
        let StreamPool { pool, stream, is_small, .. } = step.tiling.stream_pools()[stream_pool as usize];
        self.places.add(PoolStream { pool, stream, is_small })
    }

    /// Updates the block at `address`; `is_new` if this entry allocated it.
    fn block(&mut self, address: u64, now: EntryCount, is_new: bool, step: &ReplayStep<'_>) {
        let tile = step.tiling.tile_at(address).filter(|t| t.state != BlockState::Inactive);
        let known = self.live.get(&address).and_then(|at| self.allocations.get_mut(*at as usize));
        let Some(tile) = tile else {
            if let Some(known) = known {
                known.end(now);
                self.live.remove(&address);
            }
            return;
        };
        let is_pending = tile.state == BlockState::ActivePendingFree;
        if let Some(known) = known {
            let is_same = !is_new || known.start == now;
            let kind = self.kinds.all[known.kind as usize];
            if is_same && is_pending {
                known.free(now);
                // An entry that splits a pending block contradicts the file: follow the entry.
                known.kind = self.kinds.add(AllocationKind { bytes: tile.size, ..kind });
            }
            // Several changes by one entry are still one block.
            if is_same && (is_pending || kind.bytes == tile.size) {
                return;
            }
            known.end(now);
        }
        // A block that first appears as pending was never allocated by this trace.
        if !is_pending {
            let place = self.place_of(step, tile.stream_pool);
            let kind = AllocationKind { bytes: tile.size, requested_bytes: tile.requested, place };
            self.add_allocation(address, now, kind, tile.stack);
        }
    }

    fn add_allocation(&mut self, address: u64, start: EntryCount, kind: AllocationKind, made_by: StackId) {
        self.live.insert(address, to_u32(self.allocations.len()));
        self.allocations.push(AllocationLifetime {
            start,
            freed_at: NEVER,
            reusable_at: NEVER,
            address,
            made_by,
            kind: self.kinds.add(kind),
            category: Category::Other,
            confidence: Confidence::Low,
            phase: None,
            is_kept: true,
        });
    }

    fn add_segment(&mut self, segment: SegmentRange) {
        if segment.bytes > 0 {
            self.held.insert(segment.address, to_u32(self.segments.len()));
            self.segments.push(segment);
        }
    }

    /// Removes `bytes` at `address`. The parts of a range that are left become ranges of their own.
    fn remove_segment(&mut self, address: u64, bytes: u64, now: EntryCount) {
        let end = address.saturating_add(bytes);
        let touched = self.held.range(..end).rev();
        let gone: Vec<(u64, u32)> = touched
            .take_while(|(_, at)| self.segments.get(**at as usize).is_some_and(|one| one.end_address() > address))
            .map(|(address, at)| (*address, *at))
            .collect();
        for (key, at) in gone {
            self.held.remove(&key);
            let segment = &mut self.segments[at as usize];
            segment.end = Some(now);
            let original = *segment;
            for (from, to) in [(original.address, address), (end, original.end_address())] {
                let bytes = to.saturating_sub(from);
                self.add_segment(SegmentRange { start: now, end: None, address: from, bytes, ..original });
            }
        }
    }
}

impl AllocationLifetime {
    /// Whether it is older than the trace of `device`, if that has one.
    pub fn is_before_recording(&self, device: DeviceStudy<'_, '_>) -> bool {
        self.phase.is_none() && !device.device().is_empty()
    }

    /// When the program freed it; `None` if it did not.
    pub fn freed_at(&self) -> Option<EntryCount> {
        Some(self.freed_at).filter(|at| *at != NEVER)
    }

    /// When its memory could be reused: later than `freed_at` if other streams used it.
    pub fn reusable_at(&self) -> Option<EntryCount> {
        Some(self.reusable_at).filter(|at| *at != NEVER)
    }

    /// The variable that keeps it at the snapshot, an index in `DeviceStudy::variables`.
    pub fn variable(&self, device: DeviceStudy<'_, '_>) -> Option<usize> {
        device.variables()?.of_block(self.address).filter(|_| self.is_kept)
    }

    /// Counts from entry `first`, up to `entries` later.
    pub fn count_from(&mut self, first: EntryCount, entries: EntryCount) {
        self.start = self.start.saturating_sub(first);
        for at in [&mut self.freed_at, &mut self.reusable_at] {
            *at = Some(at.saturating_sub(first)).filter(|at| *at <= entries).unwrap_or(NEVER);
        }
    }

    fn free(&mut self, now: EntryCount) {
        (self.freed_at, self.is_kept) = (self.freed_at.min(now), false);
    }

    fn end(&mut self, now: EntryCount) {
        self.free(now);
        self.reusable_at = now;
    }
}

/// Whether memory that is live from `start` to `end` is live at some time within `window`; all three count applied
/// entries.
pub fn is_live(start: EntryCount, end: Option<EntryCount>, window: &Range<usize>) -> bool {
    start as usize <= window.end && end.is_none_or(|end| end as usize > window.start)
}

/// The start and end addresses of `segments`, sorted; ranges that touch are one.
pub fn joined_ranges<'s>(segments: impl Iterator<Item = &'s SegmentRange>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = segments.map(|one| (one.address, one.end_address())).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let touches = next.0 <= range.1;
        range.1 = if touches { range.1.max(next.1) } else { range.1 };
        touches
    });
    ranges
}

impl SegmentRange {
    pub fn end_address(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}
