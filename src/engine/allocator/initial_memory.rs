//! Starting from the memory that an allocator held when a recording began.

use super::block::{BlockId, PoolBlock, PoolBlockState};
use super::caching::CachingAllocator;
use super::initial_ages::{InitialAges, SegmentAge};
use super::request::{DEFAULT_POOL, PendingFreeId};
use super::size::granule_size;
use super::view::{BlockView, DeviceRange};
use crate::allocator::device::Reservation;
use crate::allocator::releases::TieBreak;
use crate::allocator::trace_action::BlockState;
use crate::base::ids::{StackId, to_u32};

/// A segment that existed, or a mapped part of an expandable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialSegment {
    pub range: DeviceRange,
    /// Base and size of the reservation that it is mapped into, if it is expandable.
    pub reservation: Option<(u64, u64)>,
}

/// The active blocks that were added, each with its address.
#[derive(Debug, Default)]
pub struct InitialMemory {
    pub live: Vec<(u64, BlockId)>,
    pub pending: Vec<(u64, PendingFreeId)>,
    /// Number of blocks that lie in no segment or overlap another block; they were not added.
    pub misplaced: usize,
}

/// A segment with all its addresses.
struct SegmentLayout {
    free_list: u32,
    /// Its first mapped part.
    first: InitialSegment,
    /// Mapped ranges (start, end), sorted, not adjacent.
    mapped: Vec<(u64, u64)>,
}

/// A block to be created: start, end, state, and the active block in it.
type BlockLayout = (u64, u64, PoolBlockState, Option<BlockView>);

impl CachingAllocator {
    /// Adds the segments and active blocks that existed before the first request, both sorted by address. The gaps between
    /// the blocks are free. Segments are registered in that order. Statistics count them as if they had just been allocated.
    pub fn add_initial_memory(&mut self, segments: &[InitialSegment], initial_blocks: &[BlockView]) -> InitialMemory {
        let mut memory = InitialMemory::default();
        let mut remaining = initial_blocks.iter().copied().peekable();
        let mut ages = Vec::new();
        for segment_layout in self.segment_layouts(segments) {
            let mut block_layouts: Vec<BlockLayout> = Vec::new();
            let (mut from, end) = match segment_layout.first.reservation {
                Some((base, size)) => (base, base.saturating_add(size)),
                None => (segment_layout.first.range.addr, 0),
            };
            for (start, stop) in &segment_layout.mapped {
                block_layouts.push((from, *start, PoolBlockState::Unmapped, None));
                from = *start;
                while let Some(initial) = remaining.next_if(|r| r.addr < *stop) {
                    let after = initial.addr.saturating_add(initial.size);
                    if initial.addr < from || after > *stop {
                        memory.misplaced += 1;
                        continue;
                    }
                    block_layouts.push((from, initial.addr, PoolBlockState::Free, None));
                    let state = match initial.state {
                        BlockState::ActivePendingFree => PoolBlockState::Pending,
                        _ => PoolBlockState::Allocated,
                    };
                    block_layouts.push((initial.addr, after, state, Some(initial)));
                    from = after;
                }
                block_layouts.push((from, *stop, PoolBlockState::Free, None));
                from = *stop;
            }
            block_layouts.push((from, end, PoolBlockState::Unmapped, None));
            block_layouts.retain(|(from, to, ..)| from < to);
            if let (Some(first), Some(last)) = (block_layouts.first(), block_layouts.last()) {
                let registration = self.registration_counter;
                let (addr, size, free_list) = (first.0, last.1 - first.0, segment_layout.free_list);
                ages.push(SegmentAge { addr, size, free_list, registration });
            }
            self.add_blocks(&segment_layout, &block_layouts, &mut memory);
        }
        memory.misplaced += remaining.count();
        self.initial_ages = InitialAges::new(self.registration_counter, ages);
        memory
    }

    fn segment_layouts(&mut self, segments: &[InitialSegment]) -> Vec<SegmentLayout> {
        let mut segment_layouts: Vec<SegmentLayout> = Vec::new();
        for segment in segments {
            let DeviceRange { addr, size, stream, pool, is_small, .. } = segment.range;
            let free_list = self.pools.free_list(pool, stream, is_small);
            let range = (addr, addr.saturating_add(size));
            match segment_layouts.last_mut() {
                Some(segment_layout)
                    if segment.reservation.is_some()
                        && segment_layout.first.reservation == segment.reservation
                        && segment_layout.free_list == free_list =>
                {
                    match segment_layout.mapped.last_mut() {
                        Some(last) if last.1 == range.0 => last.1 = range.1,
                        _ => segment_layout.mapped.push(range),
                    }
                }
                _ => segment_layouts.push(SegmentLayout { free_list, first: *segment, mapped: vec![range] }),
            }
        }
        segment_layouts
    }

    fn add_blocks(&mut self, segment: &SegmentLayout, block_layouts: &[BlockLayout], memory: &mut InitialMemory) {
        let is_small = segment.first.range.is_small;
        let mut registration = self.next_registration();
        let expandable_segment = segment.first.reservation.map(|(base, size)| {
            let granule = granule_size(is_small, &self.settings);
            self.expandable_segments.push(Reservation { base, size, granule });
            to_u32(self.expandable_segments.len() - 1)
        });
        let mut prev = BlockId::NONE;
        let mut unused = Vec::new();
        for (from, to, state, initial) in block_layouts {
            if prev != BlockId::NONE && self.behaviour.tie_break() == TieBreak::OldestBlock {
                registration = self.next_registration();
            }
            let id = self.blocks.insert(PoolBlock {
                requested: initial.map_or(0, |r| r.requested),
                prev,
                expandable_segment,
                context: initial.map_or(StackId::default(), |r| r.context),
                ..PoolBlock::new(*from, to - from, segment.free_list, registration, *state)
            });
            if let Some(prev) = prev.as_option() {
                self.blocks[prev].next = id;
            }
            prev = id;
            let block = self.blocks[id];
            match state {
                PoolBlockState::Unmapped => unused.push(id),
                PoolBlockState::Free => {
                    unused.push(id);
                    if expandable_segment.is_none() && block_layouts.len() > 1 {
                        self.statistics.inactive_split.increase(is_small, 1);
                        self.statistics.inactive_split_bytes.increase(is_small, block.size);
                    }
                }
                PoolBlockState::Pending => {
                    self.count_as_active(&block, is_small);
                    memory.pending.push((*from, self.make_pending(id)));
                }
                PoolBlockState::Allocated | PoolBlockState::Vacant => {
                    self.count_as_active(&block, is_small);
                    memory.live.push((*from, id));
                }
            }
        }
        // Both kinds are listed by their links to both neighbours.
        for id in unused {
            if self.blocks[id].state == PoolBlockState::Unmapped {
                self.insert_unmapped(id);
            } else {
                self.insert_free(id);
            }
        }
        self.count_reserved(segment);
    }

    fn count_reserved(&mut self, segment_layout: &SegmentLayout) {
        let InitialSegment { range: DeviceRange { pool, is_small, .. }, reservation } = segment_layout.first;
        for (from, to) in &segment_layout.mapped {
            let size = to - from;
            self.reserved_bytes = self.reserved_bytes.saturating_add(size);
            self.statistics.increase_reserved(pool, is_small, size);
            if pool != DEFAULT_POOL {
                self.pools.get_mut(pool).cuda_malloc_count += 1;
            }
            if reservation.is_none() {
                self.statistics.segment.increase(is_small, 1);
                if size >= self.settings.max_split_size {
                    self.statistics.oversize_segments.increase(1);
                }
            }
        }
    }
}
