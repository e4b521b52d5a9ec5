//! The state in which a recording began, by undoing the trace from the final segments.
//!
//! Segments: those at the end, less what the trace added, plus what it gave back. Live blocks: every
//! free of something that no entry had allocated, and every block at the end that no entry allocated.
//! Free space between them is always merged, so the rest of the tiling follows. Sizes of blocks that
//! were freed during the trace are not recorded; they follow from the requested bytes, the room up to
//! the next block, and the rule for splitting.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::Layout;
use super::pool_index::PoolIndex;
use super::reservations::Reservations;
use super::tiling::{DeviceRange, Tiling};
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::allocator::{
    BlockView, CachingAllocator, InitialSegment, InitialBlock, SegmentView, block_size, round_size,
};
use crate::base::ids::StackId;
use crate::base::intern::{SeededMap, SeededSet};
use crate::base::units::MIB;
use crate::snapshot::{Action, Block, BlockState, Device, TraceEntry};

/// What was there when the recording began.
#[derive(Debug, Default)]
pub(crate) struct InitialState {
    pub(crate) ranges: Vec<DeviceRange>,
    blocks: Vec<ReconstructedBlock>,
}

#[derive(Debug, Clone, Copy)]
struct ReconstructedBlock {
    addr: u64,
    /// 0 while it is not known.
    size: u64,
    requested: u64,
    state: BlockState,
    stack: StackId,
    /// The entry that ends it.
    freed_at: usize,
}

impl ReconstructedBlock {
    /// A block that lives on when the snapshot is taken.
    fn from_snapshot(block: &Block) -> Self {
        Self {
            addr: block.address,
            size: block.size,
            requested: block.requested_size,
            state: block.state,
            stack: block.made_by,
            freed_at: usize::MAX,
        }
    }
}

/// Bytes reserved before the first entry: more than 0 means that the recording began late, or that
/// its ring buffer wrapped.
fn reserved_before(device: Device<'_>, events: &[TraceEntry]) -> u64 {
    let at_end: u64 = device.segments().fold(0, |sum, s| sum.saturating_add(s.total_size));
    let (mut grown, mut shrunk) = (0u64, 0u64);
    for event in events {
        match event.action {
            Action::SegmentAlloc | Action::SegmentMap => grown = grown.saturating_add(event.size),
            Action::SegmentFree | Action::SegmentUnmap => {
                shrunk = shrunk.saturating_add(event.size);
            }
            _ => {}
        }
    }
    at_end.saturating_add(shrunk).saturating_sub(grown)
}

impl InitialState {
    /// The start of `device`'s trace; nothing when it began at an empty allocator.
    pub(crate) fn from_trace(device: Device<'_>, settings: &Settings, pools: &PoolIndex) -> Self {
        // Only entries that move segments are kept at hand; the trace itself stays in its columns.
        let moves: Vec<TraceEntry> =
            device.entries_where(Action::changes_reserved).map(|(_, event)| event).collect();
        if !device.is_empty() && reserved_before(device, &moves) == 0 {
            return Self::default();
        }
        let mut start = Self { ranges: initial_ranges(device, &moves, pools), blocks: Vec::new() };
        start.find_initial_blocks(device);
        start.infer_block_sizes(device, settings);
        start
    }

    /// The memory of `device` when the snapshot was taken.
    pub(crate) fn from_snapshot(device: Device<'_>) -> Self {
        let used = device.blocks().filter(|block| block.state != BlockState::Inactive);
        let mut blocks: Vec<ReconstructedBlock> = used.map(ReconstructedBlock::from_snapshot).collect();
        blocks.sort_by_key(|b| b.addr);
        blocks.dedup_by_key(|b| b.addr);
        Self { ranges: initial_ranges(device, &[], &PoolIndex::from_device(device)), blocks }
    }

    /// The memory of a `layout`.
    pub(crate) fn from_layout(layout: &Layout) -> Self {
        let blocks = (0..layout.blocks.len()).filter_map(|row| layout.blocks.get(row));
        let used = blocks.filter(|block| block.state != BlockState::Inactive);
        Self {
            ranges: layout.segments.iter().map(DeviceRange::from).collect(),
            blocks: used.map(ReconstructedBlock::from_snapshot).collect(),
        }
    }

    /// The memory that the model holds.
    pub(crate) fn from_model(allocator: &CachingAllocator) -> Self {
        let (segments, views) = allocator.view();
        let run = |segment: &SegmentView| DeviceRange {
            addr: segment.addr,
            size: segment.size,
            pool: segment.pool,
            stream: segment.stream,
            is_small: segment.is_small,
            is_expandable: segment.is_expandable,
        };
        let live = |block: &BlockView| ReconstructedBlock {
            addr: block.addr,
            size: block.size,
            requested: block.requested,
            state: block.state,
            stack: block.context,
            freed_at: usize::MAX,
        };
        let held = views.iter().filter(|block| block.state != BlockState::Inactive);
        Self { ranges: segments.iter().map(run).collect(), blocks: held.map(live).collect() }
    }

    /// Whether there was nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.blocks.is_empty()
    }

    /// The start as the model takes it over.
    pub(crate) fn to_model_state(
        &self,
        reservations: &Reservations,
    ) -> (Vec<InitialSegment>, Vec<InitialBlock>) {
        let mut lowest = SeededMap::default();
        for run in self.ranges.iter().filter(|run| run.is_expandable) {
            lowest.entry((run.stream, run.is_small, run.pool)).or_insert(run.addr);
        }
        let base = |run: &DeviceRange| {
            let lowest = lowest.get(&(run.stream, run.is_small, run.pool))?;
            run.is_expandable.then(|| reservations.base(run.stream, run.is_small, *lowest))
        };
        // Where one begins, those below it have ended.
        let bases: BTreeSet<u64> = self.ranges.iter().filter_map(base).collect();
        let reservation = |run: &DeviceRange| {
            let base = base(run)?;
            let next = bases.range(base.saturating_add(1)..).next();
            Some((base, next.map_or(UNBOUNDED, |next| next - base)))
        };
        let held = self.ranges.iter().map(|run| InitialSegment {
            addr: run.addr,
            size: run.size,
            stream: run.stream,
            pool: run.pool,
            is_small: run.is_small,
            reservation: reservation(run),
        });
        let residents = self.blocks.iter().map(|block| InitialBlock {
            addr: block.addr,
            size: block.size,
            requested: block.requested,
            state: block.state,
            context: block.stack,
        });
        (held.collect(), residents.collect())
    }

    /// Lays the start out in an empty tiling.
    pub(crate) fn place_in(&self, tiling: &mut Tiling) -> u64 {
        let mut contradictions = 0;
        for run in &self.ranges {
            contradictions += u64::from(tiling.add_range(*run).is_err());
        }
        for block in &self.blocks {
            if tiling.place_block(block.addr, block.size, block.requested, block.state).is_err() {
                contradictions += 1;
            } else {
                tiling.set_stack(block.addr, block.stack);
            }
        }
        contradictions
    }

    /// Every block that no entry allocated: freed later, or still there at the end.
    fn find_initial_blocks(&mut self, device: Device<'_>) {
        let mut live: SeededSet<u64> = SeededSet::default();
        // With its row in `self.blocks`, when it was there at the start.
        let mut pending: SeededMap<u64, Option<usize>> = SeededMap::default();
        for (index, event) in device.entries().enumerate() {
            let state = match event.action {
                Action::Alloc => {
                    live.insert(event.addr);
                    pending.remove(&event.addr);
                    continue;
                }
                Action::FreeRequested => {
                    if live.remove(&event.addr) {
                        pending.insert(event.addr, None);
                        continue;
                    }
                    pending.insert(event.addr, Some(self.blocks.len()));
                    BlockState::ActiveAllocated
                }
                Action::FreeCompleted => {
                    let freed = pending.remove(&event.addr);
                    if let Some(block) = freed.flatten().and_then(|row| self.blocks.get_mut(row)) {
                        block.freed_at = index; // it was in the way until now
                    }
                    if freed.is_some() || live.remove(&event.addr) {
                        continue;
                    }
                    BlockState::ActivePendingFree
                }
                _ => continue,
            };
            self.blocks.push(ReconstructedBlock {
                addr: event.addr,
                size: 0,
                requested: event.size,
                state,
                stack: StackId::default(),
                freed_at: index,
            });
        }
        for block in device.blocks() {
            if block.state == BlockState::Inactive || live.contains(&block.address) {
                continue;
            }
            if let Some(known) = pending.get(&block.address) {
                if let Some(block_at_start) = known.and_then(|row| self.blocks.get_mut(row)) {
                    block_at_start.size = block.size;
                }
                continue;
            }
            self.blocks.push(ReconstructedBlock::from_snapshot(block));
        }
        // Of several at one address the first in the trace was there at the start.
        self.blocks.sort_by_key(|b| (b.addr, b.freed_at));
        self.blocks.dedup_by_key(|b| b.addr);
    }

    /// Fills in the sizes that only the trace hints at.
    fn infer_block_sizes(&mut self, device: Device<'_>, settings: &Settings) {
        let landings = self.adjacent_allocs(device, settings);
        let ends = self.chain_ends();
        let mut next_addr = u64::MAX;
        for block in self.blocks.iter_mut().rev() {
            let after = self.ranges.partition_point(|r| r.addr <= block.addr);
            let run = after.checked_sub(1).and_then(|i| self.ranges.get(i));
            let Some(run) = run.filter(|r| block.addr - r.addr < r.size) else { continue };
            let end = ends.get(after - 1).copied().unwrap_or(run.addr);
            if block.size == 0 {
                let room = end.min(next_addr) - block.addr;
                let rounded = round_size(block.requested, settings);
                block.size = block_size(rounded, room, run.is_small, settings).min(room);
                // The small pool splits to the byte, and a segment that adjoins tells nothing.
                if block.size == rounded
                    && !run.is_small
                    && let Some(&landing) = landings.get(&block.addr)
                    && landing < end
                {
                    block.size = (landing - block.addr).min(room);
                }
            }
            next_addr = block.addr;
        }
    }

    /// Where the memory of each run ends: mapped ranges of an expandable segment may adjoin, and a
    /// block may span them.
    fn chain_ends(&self) -> Vec<u64> {
        let mut ends: Vec<u64> = Vec::with_capacity(self.ranges.len());
        let mut next: Option<&DeviceRange> = None;
        for run in self.ranges.iter().rev() {
            let end = run.addr.saturating_add(run.size);
            let goes_on =
                next.is_some_and(|n| n.is_expandable && run.is_expandable && n.addr == end);
            ends.push(if goes_on { ends.last().copied().unwrap_or(end) } else { end });
            next = Some(run);
        }
        ends.reverse();
        ends
    }

    /// For blocks of unknown size: where the first allocation landed just behind them while they
    /// lived. A large block may be up to 1 MiB larger than its rounded request.
    fn adjacent_allocs(&self, device: Device<'_>, settings: &Settings) -> SeededMap<u64, u64> {
        let mut landings = SeededMap::default();
        for (index, event) in device.entries_where(|action| action == Action::Alloc) {
            let after = self.blocks.partition_point(|b| b.addr < event.addr);
            let Some(block) = after.checked_sub(1).and_then(|i| self.blocks.get(i)) else {
                continue;
            };
            let least = block.addr.saturating_add(round_size(block.requested, settings));
            if block.size == 0
                && index < block.freed_at
                && (least..=least.saturating_add(MIB)).contains(&event.addr)
            {
                landings.entry(block.addr).or_insert(event.addr);
            }
        }
        landings
    }
}

/// The final runs with the trace's moves undone, in address order.
fn initial_ranges(device: Device<'_>, moves: &[TraceEntry], pools: &PoolIndex) -> Vec<DeviceRange> {
    let mut runs: BTreeMap<u64, DeviceRange> = BTreeMap::new();
    for segment in device.segments().filter(|s| s.total_size > 0) {
        runs.insert(segment.address, DeviceRange::from(segment));
    }
    for event in moves.iter().rev() {
        match event.action {
            Action::SegmentAlloc => {
                runs.remove(&event.addr);
            }
            Action::SegmentMap => unmap(&mut runs, event.addr, event.size),
            _ => {
                runs.insert(event.addr, pools.removed_range(event));
            }
        }
    }
    runs.into_values().collect()
}

/// Takes a range out of the expandable run around it.
fn unmap(runs: &mut BTreeMap<u64, DeviceRange>, addr: u64, size: u64) {
    // A range may span runs that were unmapped one by one later on.
    let mut at = addr;
    let end = addr.saturating_add(size);
    while at < end {
        let Some((_, &run)) = runs.range(..=at).next_back() else { return };
        let run_end = run.addr.saturating_add(run.size);
        if run_end <= at {
            return;
        }
        runs.remove(&run.addr);
        if run.addr < at {
            runs.insert(run.addr, DeviceRange { size: at - run.addr, ..run });
        }
        if end < run_end {
            runs.insert(end, DeviceRange { addr: end, size: run_end - end, ..run });
        }
        at = run_end;
    }
}
