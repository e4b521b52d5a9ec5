//! The state in which a recording began, reconstructed by undoing the trace from the final segments.
//!
//! Segments are those at the end, without the ones that the trace added, and with the ones that it returned to the
//! device. Active blocks are those that an entry frees or that exist at the end, if no entry allocated them. Adjacent
//! free blocks are always merged, so the free blocks follow. The size of a block that was freed during the trace is not
//! recorded; it follows from the requested bytes, the room up to the next block, and the rule for splitting.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::Layout;
use super::pool_index::PoolIndex;
use super::reservations::Reservations;
use super::tiling::Tiling;
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::allocator::{BlockView, CachingAllocator, DeviceRange, InitialSegment, block_size, round_size};
use crate::base::ids::StackId;
use crate::base::intern::{SeededMap, SeededSet};
use crate::base::units::MIB;
use crate::snapshot::{Action, Block, BlockState, Device, TraceEntry};

/// The memory of one device when the recording began, or at another entry.
#[derive(Debug, Default)]
pub(crate) struct InitialState {
    pub(crate) ranges: Vec<DeviceRange>,
    /// Allocated or pending, in address order.
    blocks: Vec<BlockView>,
}

/// A block that was active before the trace.
#[derive(Debug, Clone, Copy)]
struct TracedBlock {
    /// Its size is 0 until it is inferred.
    block: BlockView,
    /// The entry that completes its free; `usize::MAX` if it exists at the end.
    freed_at: usize,
}

/// The active ones of `blocks`.
fn active_blocks<'b>(blocks: impl Iterator<Item = &'b Block>) -> Vec<BlockView> {
    blocks.filter(|block| block.state != BlockState::Inactive).map(BlockView::from).collect()
}

/// Bytes reserved before the first entry. They are above 0 if the recording began late or its ring buffer wrapped.
fn reserved_before(device: Device<'_>, entries: &[TraceEntry]) -> u64 {
    let at_end: u64 = device.segments().fold(0, |sum, s| sum.saturating_add(s.total_size));
    let shrinks = entries.iter().filter(|entry| entry.action.is_shrink());
    let before = shrinks.fold(at_end, |sum, entry| sum.saturating_add(entry.size));
    let growths = entries.iter().filter(|entry| entry.action.is_growth());
    growths.fold(before, |sum, entry| sum.saturating_sub(entry.size))
}

impl InitialState {
    /// The state before the trace of `device`.
    pub(crate) fn from_trace(device: Device<'_>, settings: &Settings, pools: &PoolIndex) -> Self {
        let segment_entries: Vec<TraceEntry> =
            device.entries_where(Action::changes_reserved).map(|(_, entry)| entry).collect();
        if !device.is_empty() && reserved_before(device, &segment_entries) == 0 {
            return Self::default();
        }
        let mut state = Self { ranges: initial_ranges(device, &segment_entries, pools), blocks: Vec::new() };
        let mut blocks = find_initial_blocks(device);
        state.infer_block_sizes(&mut blocks, device, settings);
        state.blocks = blocks.into_iter().map(|traced| traced.block).collect();
        state
    }

    /// The memory of `device` at the end of the trace.
    pub(crate) fn from_snapshot(device: Device<'_>) -> Self {
        let mut blocks = active_blocks(device.blocks());
        blocks.sort_by_key(|b| b.addr);
        blocks.dedup_by_key(|b| b.addr);
        Self { ranges: initial_ranges(device, &[], &PoolIndex::from_device(device)), blocks }
    }

    pub(crate) fn from_layout(layout: &Layout) -> Self {
        Self {
            ranges: layout.segments.iter().map(DeviceRange::from).collect(),
            blocks: active_blocks(layout.blocks.iter()),
        }
    }

    pub(crate) fn from_model(allocator: &CachingAllocator) -> Self {
        let (segments, mut blocks) = allocator.view();
        blocks.retain(|block| block.state != BlockState::Inactive);
        Self { ranges: segments.iter().map(|segment| segment.range).collect(), blocks }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.blocks.is_empty()
    }

    /// The state in the form that the allocator model starts from.
    pub(crate) fn to_model_state(&self, reservations: &Reservations) -> (Vec<InitialSegment>, Vec<BlockView>) {
        let mut lowest_addrs = SeededMap::default();
        for range in self.ranges.iter().filter(|range| range.is_expandable) {
            lowest_addrs.entry((range.stream, range.is_small, range.pool)).or_insert(range.addr);
        }
        let bases = self.ranges.iter().map(|range| {
            let lowest = lowest_addrs.get(&(range.stream, range.is_small, range.pool))?;
            range.is_expandable.then(|| reservations.base(range.stream, range.is_small, *lowest))
        });
        // A reservation ends where the next one begins, at the latest.
        let starts: BTreeSet<u64> = bases.clone().flatten().collect();
        let segments = self.ranges.iter().zip(bases).map(|(range, base)| {
            let reservation = base.map(|base| {
                let next = starts.range(base.saturating_add(1)..).next();
                (base, next.map_or(UNBOUNDED, |next| next - base))
            });
            InitialSegment { range: *range, reservation }
        });
        (segments.collect(), self.blocks.clone())
    }

    /// Adds the memory to an empty tiling; returns the number of ranges and blocks that do not fit.
    pub(crate) fn place_in(&self, tiling: &mut Tiling) -> u64 {
        let ranges = self.ranges.iter().filter(|range| tiling.add_range(**range).is_err()).count();
        let blocks = self.blocks.iter().filter(|block| tiling.place_block(block).is_err()).count();
        (ranges + blocks) as u64
    }

    /// Infers the sizes of blocks that were freed during the trace.
    fn infer_block_sizes(&self, blocks: &mut [TracedBlock], device: Device<'_>, settings: &Settings) {
        let next_allocs = next_allocs(blocks, device, settings);
        let ends = self.chain_ends();
        let mut next_addr = u64::MAX;
        for TracedBlock { block, .. } in blocks.iter_mut().rev() {
            let after = self.ranges.partition_point(|r| r.addr <= block.addr);
            let range = after.checked_sub(1).and_then(|i| self.ranges.get(i));
            // Outside every range: `place_in` counts it as a contradiction.
            let Some(range) = range.filter(|r| block.addr - r.addr < r.size) else { continue };
            let end = ends.get(after - 1).copied().unwrap_or(range.addr);
            if block.size == 0 {
                let room = end.min(next_addr) - block.addr;
                let rounded = round_size(block.requested, settings);
                block.size = block_size(rounded, room, range.is_small, settings).min(room);
                // The small pool always splits, and an allocation in the next segment says nothing about this block.
                if block.size == rounded
                    && !range.is_small
                    && let Some(&next_alloc) = next_allocs.get(&block.addr)
                    && next_alloc < end
                {
                    block.size = (next_alloc - block.addr).min(room);
                }
            }
            next_addr = block.addr;
        }
    }

    /// The end of the contiguous memory from each range on: mapped ranges of an expandable segment may be adjacent, and
    /// a block may span them.
    fn chain_ends(&self) -> Vec<u64> {
        let mut ends: Vec<u64> = Vec::with_capacity(self.ranges.len());
        let mut next: Option<&DeviceRange> = None;
        for range in self.ranges.iter().rev() {
            let end = range.addr.saturating_add(range.size);
            let is_continued = next.is_some_and(|n| n.is_expandable && range.is_expandable && n.addr == end);
            ends.push(if is_continued { ends.last().copied().unwrap_or(end) } else { end });
            next = Some(range);
        }
        ends.reverse();
        ends
    }
}

/// Finds every active block that no entry allocated.
fn find_initial_blocks(device: Device<'_>) -> Vec<TracedBlock> {
    let mut blocks: Vec<TracedBlock> = Vec::new();
    let mut live: SeededSet<u64> = SeededSet::default();
    // With its index in `blocks`, if it is an initial block.
    let mut pending: SeededMap<u64, Option<usize>> = SeededMap::default();
    // The block that the last entry freed. Most frees complete at once.
    let mut just_freed = None;
    for index in 0..device.len() {
        let entry = device.entry(index);
        if let Some(freed) = just_freed.take() {
            if entry.action == Action::FreeCompleted && entry.addr == freed {
                continue;
            }
            pending.insert(freed, None);
        }
        let state = match entry.action {
            Action::Alloc => {
                live.insert(entry.addr);
                if !pending.is_empty() {
                    pending.remove(&entry.addr);
                }
                continue;
            }
            Action::FreeRequested => {
                if live.remove(&entry.addr) {
                    just_freed = Some(entry.addr);
                    continue;
                }
                pending.insert(entry.addr, Some(blocks.len()));
                BlockState::ActiveAllocated
            }
            Action::FreeCompleted => {
                let freed = pending.remove(&entry.addr);
                if let Some(block) = freed.flatten().and_then(|index| blocks.get_mut(index)) {
                    block.freed_at = index; // it took up its memory until now
                }
                if freed.is_some() || live.remove(&entry.addr) {
                    continue;
                }
                BlockState::ActivePendingFree
            }
            _ => continue,
        };
        let (addr, requested, context) = (entry.addr, entry.size, StackId::default());
        blocks.push(TracedBlock { block: BlockView { addr, size: 0, requested, state, context }, freed_at: index });
    }
    pending.extend(just_freed.map(|freed| (freed, None)));
    add_final_blocks(&mut blocks, device, &live, &pending);
    // If several blocks have one address, the first in the trace is the initial one.
    blocks.sort_by_key(|traced| (traced.block.addr, traced.freed_at));
    blocks.dedup_by_key(|traced| traced.block.addr);
    blocks
}

/// Adds the blocks that are active at the end, unless an entry allocated them: those in `live`, and those in `pending`
/// without an index in `blocks`.
fn add_final_blocks(
    blocks: &mut Vec<TracedBlock>,
    device: Device<'_>,
    live: &SeededSet<u64>,
    pending: &SeededMap<u64, Option<usize>>,
) {
    for block in device.blocks() {
        if block.state == BlockState::Inactive || live.contains(&block.address) {
            continue;
        }
        if let Some(known) = pending.get(&block.address) {
            if let Some(initial_block) = known.and_then(|index| blocks.get_mut(index)) {
                initial_block.block.size = block.size;
            }
            continue;
        }
        blocks.push(TracedBlock { block: BlockView::from(block), freed_at: usize::MAX });
    }
}

/// For each block of unknown size, the address of the first allocation right behind it while it was active. A block
/// of the large pool may be up to 1 MiB larger than its rounded request.
fn next_allocs(blocks: &[TracedBlock], device: Device<'_>, settings: &Settings) -> SeededMap<u64, u64> {
    let mut next_allocs = SeededMap::default();
    let unknown = blocks.iter().filter(|traced| traced.block.size == 0);
    let last_freed_at = unknown.map(|traced| traced.freed_at).max().unwrap_or(0);
    for index in 0..device.len().min(last_freed_at) {
        if device.action(index) != Some(Action::Alloc) {
            continue;
        }
        let entry = device.entry(index);
        let after = blocks.partition_point(|traced| traced.block.addr < entry.addr);
        let Some(TracedBlock { block, freed_at }) = after.checked_sub(1).and_then(|i| blocks.get(i)) else {
            continue; // no initial block is below this address
        };
        let min_end = block.addr.saturating_add(round_size(block.requested, settings));
        if block.size == 0 && index < *freed_at && (min_end..=min_end.saturating_add(MIB)).contains(&entry.addr) {
            next_allocs.entry(block.addr).or_insert(entry.addr);
        }
    }
    next_allocs
}

/// The final ranges with the segment entries of the trace undone, in address order.
fn initial_ranges(device: Device<'_>, segment_entries: &[TraceEntry], pools: &PoolIndex) -> Vec<DeviceRange> {
    let mut ranges: BTreeMap<u64, DeviceRange> = BTreeMap::new();
    for segment in device.segments().filter(|s| s.total_size > 0) {
        ranges.insert(segment.address, DeviceRange::from(segment));
    }
    for entry in segment_entries.iter().rev() {
        match entry.action {
            Action::SegmentAlloc => {
                ranges.remove(&entry.addr);
            }
            Action::SegmentMap => unmap(&mut ranges, entry.addr, entry.size),
            _ => {
                ranges.insert(entry.addr, pools.removed_range(entry));
            }
        }
    }
    ranges.into_values().collect()
}

/// Removes an address range from the expandable ranges that contain it.
fn unmap(ranges: &mut BTreeMap<u64, DeviceRange>, addr: u64, size: u64) {
    // It may span ranges that were unmapped one by one later.
    let mut at = addr;
    let end = addr.saturating_add(size);
    while at < end {
        // The trace maps memory that nothing holds at the end and no entry unmaps: nothing to remove.
        let Some((_, &range)) = ranges.range(..=at).next_back() else { return };
        let range_end = range.addr.saturating_add(range.size);
        if range_end <= at {
            return;
        }
        ranges.remove(&range.addr);
        if range.addr < at {
            ranges.insert(range.addr, DeviceRange { size: at - range.addr, ..range });
        }
        if end < range_end {
            ranges.insert(end, DeviceRange { addr: end, size: range_end - end, ..range });
        }
        at = range_end;
    }
}
