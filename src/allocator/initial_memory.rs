//! Starting from the memory that an allocator held when a recording began.

use std::collections::BTreeMap;

use super::behaviour::TieBreak;
use super::block::{BlockId, ExpandableSegment, PoolBlock, PoolBlockState};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{DEFAULT_POOL, PendingFreeId, Request};
use super::size::granule_size;
use crate::allocator::trace_action::BlockState;
use crate::base::ids::{PoolId, StackId, to_u32};

/// A segment that existed, or a mapped part of an expandable one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialSegment {
    pub addr: u64,
    pub size: u64,
    pub stream: u64,
    pub pool: PoolId,
    /// Whether it belongs to the small pool (requests up to 1 MiB).
    pub is_small: bool,
    /// Base and size of the reservation that it is mapped into, if it is expandable.
    pub reservation: Option<(u64, u64)>,
}

/// A block that was active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitialBlock {
    pub addr: u64,
    pub size: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Allocated or pending. The gaps between these blocks are free blocks.
    pub state: BlockState,
    /// Where it was allocated, if known.
    pub context: StackId,
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
    pool: PoolId,
    is_small: bool,
    /// Mapped ranges (start, end), sorted, not adjacent.
    mapped: Vec<(u64, u64)>,
    reservation: Option<(u64, u64)>,
}

/// A block to be created: start, end, state, and the active block in it.
type BlockLayout = (u64, u64, PoolBlockState, Option<InitialBlock>);

impl CachingAllocator {
    /// Adds the segments and active blocks that existed before the first request, both sorted by address. Segments
    /// are registered in that order. Statistics count them as if they had just been allocated.
    pub fn add_initial_memory(
        &mut self,
        segments: &[InitialSegment],
        initial_blocks: &[InitialBlock],
    ) -> InitialMemory {
        let mut memory = InitialMemory::default();
        let mut remaining = initial_blocks.iter().copied().peekable();
        for segment_layout in self.segment_layouts(segments) {
            let mut block_layouts: Vec<BlockLayout> = Vec::new();
            let (mut from, end) = match segment_layout.reservation {
                Some((base, size)) => (base, base.saturating_add(size)),
                None => (segment_layout.mapped.first().map_or(0, |m| m.0), 0),
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
            self.add_blocks(&segment_layout, &block_layouts, &mut memory);
        }
        memory.misplaced += remaining.count();
        self.initial_registrations = self.registration_counter;
        memory
    }

    fn segment_layouts(&mut self, segments: &[InitialSegment]) -> Vec<SegmentLayout> {
        let mut segment_layouts: Vec<SegmentLayout> = Vec::new();
        for segment in segments {
            let free_list = self.pools.free_list(segment.pool, segment.stream, segment.is_small);
            let range = (segment.addr, segment.addr.saturating_add(segment.size));
            match segment_layouts.last_mut() {
                Some(segment_layout)
                    if segment.reservation.is_some()
                        && segment_layout.reservation == segment.reservation
                        && segment_layout.free_list == free_list =>
                {
                    match segment_layout.mapped.last_mut() {
                        Some(last) if last.1 == range.0 => last.1 = range.1,
                        _ => segment_layout.mapped.push(range),
                    }
                }
                _ => segment_layouts.push(SegmentLayout {
                    free_list,
                    pool: segment.pool,
                    is_small: segment.is_small,
                    mapped: vec![range],
                    reservation: segment.reservation,
                }),
            }
        }
        segment_layouts
    }

    fn add_blocks(
        &mut self,
        segment_layout: &SegmentLayout,
        block_layouts: &[BlockLayout],
        memory: &mut InitialMemory,
    ) {
        let mut registration = self.next_registration();
        let expandable_segment = segment_layout.reservation.map(|(base, size)| {
            self.expandable_segments.push(ExpandableSegment {
                base,
                size,
                granule_size: granule_size(segment_layout.is_small, &self.settings),
            });
            to_u32(self.expandable_segments.len() - 1)
        });
        let mut prev = BlockId::NONE;
        let mut unused = Vec::new();
        for (from, to, state, initial) in block_layouts {
            if prev != BlockId::NONE && self.behaviour.tie_break == TieBreak::OldestBlock {
                registration = self.next_registration();
            }
            let id = self.blocks.insert(PoolBlock {
                addr: *from,
                size: to - from,
                requested: initial.map_or(0, |r| r.requested),
                gc_count_base: 0,
                prev,
                next: BlockId::NONE,
                free_list: segment_layout.free_list,
                registration,
                expandable_segment,
                state: *state,
                context: initial.map_or(StackId::default(), |r| r.context),
                segment_context: StackId::default(),
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
                        self.statistics.inactive_split.increase(segment_layout.is_small, 1);
                        self.statistics.inactive_split_bytes.increase(segment_layout.is_small, block.size);
                    }
                }
                PoolBlockState::Pending => {
                    self.count_as_active(&block, segment_layout.is_small);
                    memory.pending.push((*from, self.make_pending(id)));
                }
                PoolBlockState::Allocated | PoolBlockState::Vacant => {
                    self.count_as_active(&block, segment_layout.is_small);
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
        self.count_reserved(segment_layout);
    }

    fn count_reserved(&mut self, segment_layout: &SegmentLayout) {
        for (from, to) in &segment_layout.mapped {
            let size = to - from;
            self.reserved_bytes = self.reserved_bytes.saturating_add(size);
            self.statistics.increase_reserved(segment_layout.pool, segment_layout.is_small, size);
            if segment_layout.pool != DEFAULT_POOL {
                self.pools.get_mut(segment_layout.pool).cuda_malloc_count += 1;
            }
            if segment_layout.reservation.is_none() {
                self.statistics.segment.increase(segment_layout.is_small, 1);
                if size >= self.settings.max_split_size {
                    self.statistics.oversize_segments.increase(1);
                }
            }
        }
    }

    /// The relative age of initial segments is unknown until the recorded allocator chose between two of them. Makes
    /// the free block at `addr` the one that serves `request`, if only the guessed order prevents it.
    pub fn prefer_block_at(&mut self, request: &Request<'_>, addr: u64) {
        if self.behaviour.tie_break == TieBreak::LowestAddress {
            return;
        }
        let Some(first) = self.find_free_block(request).filter(|key| key.addr != addr) else {
            return; // no free block serves the request, or this one does already
        };
        let free_list = self.blocks[first.id].free_list as usize;
        let free = &self.pools.free_lists[free_list].free;
        let mut same_size = free.range_from(FreeKey::at_least(first.size)).take_while(|key| key.size == first.size);
        let Some(chosen) = same_size.find(|key| key.addr == addr).map(|key| key.registration) else {
            return; // the block is not free, or of another size: its age does not matter
        };
        drop(same_size);
        self.make_older(chosen, first.registration);
    }

    /// The same for segments that were released in the order of `addrs`: within one free list and size, older
    /// segments are released first.
    pub fn prefer_release_order(&mut self, addrs: &[u64]) {
        if self.behaviour.tie_break == TieBreak::LowestAddress || self.initial_registrations == 0 || addrs.len() < 2 {
            return;
        }
        let free_segments: BTreeMap<u64, BlockId> = self
            .blocks
            .ids()
            .filter(|id| self.blocks[*id].state == PoolBlockState::Free && !self.blocks[*id].is_split())
            .map(|id| (self.blocks[id].addr, id))
            .collect();
        for pair in addrs.windows(2) {
            // Addresses that are not those of free segments say nothing about their order.
            let [Some(&first), Some(&second)] = [0, 1].map(|at| free_segments.get(pair.get(at)?)) else {
                continue;
            };
            let (first, second) = (self.blocks[first], self.blocks[second]);
            if (first.free_list, first.size) == (second.free_list, second.size) {
                self.make_older(first.registration, second.registration);
            }
        }
    }

    /// Moves registration `to` to `from` and shifts those between up by one, if all of them are guesses.
    fn make_older(&mut self, to: u32, from: u32) {
        if to >= self.initial_registrations || from >= to {
            return;
        }
        let moved: Vec<BlockId> =
            self.blocks.ids().filter(|id| (from..=to).contains(&self.blocks[*id].registration)).collect();
        for id in moved {
            let is_free = self.blocks[id].state == PoolBlockState::Free;
            if is_free {
                self.remove_from_free_list(id);
            }
            let block = &mut self.blocks[id];
            block.registration = if block.registration == to { from } else { block.registration + 1 };
            if is_free {
                let since = block.gc_count_base;
                self.insert_free(id);
                self.blocks[id].gc_count_base = since;
            }
        }
    }
}
