//! Expandable segments: reserved addresses into which memory is mapped granule by granule.

use super::block::{BlockId, PoolBlock, PoolBlockState};
use super::caching::{CachingAllocator, fraction_of};
use super::request::{AllocParams, DEFAULT_POOL};
use super::size::granule_size;
use crate::allocator::conf::Reserve;
use crate::allocator::device::{DeviceMemory, FreeRanges, Reservation};
use crate::allocator::releases::Rule;
use crate::allocator::trace_action::Action;
use crate::base::ids::{StackId, to_u32};
use crate::base::step_counter::count_step;

/// With more holes, the runs of free addresses are listed by their length.
const MAX_HOLES_TO_SEARCH: usize = if cfg!(test) { 2 } else { 32 };

impl CachingAllocator {
    /// Finds room for the request in an expandable segment and maps the missing memory. If the device runs out
    /// half-way, the memory mapped so far stays mapped.
    pub(super) fn try_allocate_expandable_block(
        &mut self,
        params: &AllocParams,
        device: &mut dyn DeviceMemory,
    ) -> Option<BlockId> {
        let mut id = self.find_expandable_block(params, device)?;
        if self.blocks[id].state == PoolBlockState::Unmapped {
            let bytes = self.blocks[id].size.min(params.size);
            self.map_block(id, bytes, params.context, device)?;
        }
        while self.blocks[id].size < params.size {
            // Only segments of an invalid recording, which overlap, have another neighbour here.
            let next =
                self.blocks[id].next.as_option().filter(|id| self.blocks[*id].state == PoolBlockState::Unmapped)?;
            let bytes = (params.size - self.blocks[id].size).min(self.blocks[next].size);
            self.map_block(next, bytes, params.context, device)?;
            id = next; // `map_block` has merged the block before into it
        }
        self.remove_from_free_list(id);
        Some(id)
    }

    /// `find_expandable_block`: the first run of free addresses, mapped or not, that is long enough; else a new
    /// reservation.
    fn find_expandable_block(&mut self, params: &AllocParams, device: &mut dyn DeviceMemory) -> Option<BlockId> {
        let empty = self.pools.free_lists[params.free_list as usize].unmapped.first_empty(params.size);
        if let Some((_, first)) = empty.into_iter().chain(self.find_run(params)).min_by_key(|(addr, _)| *addr) {
            return Some(first);
        }
        let granule = granule_size(params.is_small, &self.settings);
        let size = self.reservation_size(granule, device.total_bytes())?;
        let base = device.reserve(size, granule).ok()?;
        let registration = self.next_registration();
        if size < params.size && self.behaviour.has(Rule::ReservationMustFit) {
            device.release(base, size);
            return None;
        }
        let segment = Reservation { base, size, granule };
        Some(self.add_expandable_segment(segment, params.free_list, registration))
    }

    /// The first run of free addresses with a hole that is long enough: its first hole and its first block.
    fn find_run(&mut self, params: &AllocParams) -> Option<(u64, BlockId)> {
        let number = params.free_list as usize;
        let unmapped = &self.pools.free_lists[number].unmapped;
        if unmapped.runs.is_none() && unmapped.holes.len() > MAX_HOLES_TO_SEARCH {
            self.list_runs(number);
        }
        let unmapped = &self.pools.free_lists[number].unmapped;
        let Some(runs) = &unmapped.runs else {
            let mut passed = 0;
            return unmapped.holes.iter().find_map(|(addr, hole)| {
                if *addr < passed {
                    return None; // a shorter part of the run before
                }
                let start = self.first_of_run(*hole);
                let (mut run_bytes, mut at) = (0u64, start);
                while self.is_allocatable(at) {
                    count_step();
                    run_bytes = run_bytes.saturating_add(self.blocks[at].size);
                    if run_bytes >= params.size {
                        return Some((*addr, start));
                    }
                    passed = self.blocks[at].end();
                    at = self.blocks[at].next;
                }
                None
            });
        };
        let run = runs.first(params.size)?;
        let (addr, hole) = unmapped.holes.range(run.start..).next()?;
        Some((*addr, self.first_of_run(*hole)))
    }

    /// The first block of the run whose first hole is `hole`: neighbours that are both free are one block.
    fn first_of_run(&self, hole: BlockId) -> BlockId {
        let prev = self.blocks[hole].prev;
        if self.is_allocatable(prev) { prev } else { hole }
    }

    /// Lists the runs of a free list. From now on they are kept up to date.
    fn list_runs(&mut self, number: usize) {
        let free_list = &mut self.pools.free_lists[number];
        let free = free_list.free.iter().map(|key| key.id).filter(|id| self.blocks[*id].is_expandable());
        let blocks: Vec<BlockId> = free.chain(free_list.unmapped.holes.values().copied()).collect();
        free_list.unmapped.runs = Some(FreeRanges::default());
        for id in blocks {
            free_list.unmapped.add_to_runs(&self.blocks[id]);
        }
    }

    fn is_allocatable(&self, id: BlockId) -> bool {
        id.as_option().is_some_and(|id| self.blocks[id].is_allocatable())
    }

    /// Bytes of addresses to reserve for a new segment.
    fn reservation_size(&self, granule: u64, total: u64) -> Option<u64> {
        let default = total.saturating_add(total / 8);
        let bytes = match self.settings.expandable_segments_reserve {
            Some(reserve) if self.behaviour.has(Rule::ReservationMustFit) => match reserve {
                Reserve::Bytes(bytes) => bytes.min(default),
                Reserve::Fraction(part) => fraction_of(total, part).min(default),
            },
            _ => default,
        };
        bytes.checked_next_multiple_of(granule)
    }

    /// A new reservation, as one unmapped block.
    fn add_expandable_segment(&mut self, segment: Reservation, free_list: u32, registration: u32) -> BlockId {
        let number = to_u32(self.expandable_segments.len());
        self.expandable_segments.push(segment);
        let block = PoolBlock::new(segment.base, segment.size, free_list, registration, PoolBlockState::Unmapped);
        let id = self.blocks.insert(PoolBlock { expandable_segment: Some(number), ..block });
        self.insert_unmapped(id);
        id
    }

    pub(super) fn insert_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let unmapped = &mut self.pools.free_lists[block.free_list as usize].unmapped;
        unmapped.insert(id, block);
        unmapped.add_to_runs(block);
    }

    /// Maps the first `bytes` of an unmapped block, rounded up to granules.
    fn map_block(&mut self, id: BlockId, bytes: u64, context: StackId, device: &mut dyn DeviceMemory) -> Option<()> {
        let block = self.blocks[id];
        let granule = self.granule_size(&block);
        let size = bytes.checked_next_multiple_of(granule)?.min(block.size);
        device.map(block.addr, size).ok()?;
        self.remove_from_free_list(id);
        self.blocks[id].state = PoolBlockState::Free;
        if size < block.size {
            let tail = self.split_back(id, size, PoolBlockState::Unmapped);
            self.insert_unmapped(tail);
        }
        self.try_merge_blocks(id, self.blocks[id].prev);
        self.try_merge_blocks(id, self.blocks[id].next);
        self.insert_free(id);
        let (pool, is_small) = self.pools.pool_and_size_class(block.free_list);
        self.reserved_bytes = self.reserved_bytes.saturating_add(size);
        self.statistics.increase_reserved(pool, is_small, size);
        self.statistics.num_device_alloc += 1;
        self.record_trace(Action::SegmentMap, &block, size, context);
        let merged = &mut self.blocks[id];
        if merged.prev == BlockId::NONE && merged.segment_context == StackId::default() {
            merged.segment_context = context;
        }
        Some(())
    }

    fn granule_size(&self, block: &PoolBlock) -> u64 {
        debug_assert!(block.is_expandable(), "only blocks of expandable segments are mapped");
        let segment = block.expandable_segment.and_then(|number| self.expandable_segments.get(number as usize));
        segment.map_or(1, |segment| segment.granule).max(1)
    }

    /// Addresses (start, end) of the granules that lie wholly in a block.
    pub(super) fn whole_granule_range(&self, id: BlockId) -> Option<(u64, u64)> {
        let block = &self.blocks[id];
        let segment = self.expandable_segments.get(block.expandable_segment? as usize)?;
        let start = block.addr.checked_sub(segment.base)?.checked_next_multiple_of(segment.granule)?;
        let end = (block.end() - segment.base) / segment.granule * segment.granule;
        (start < end).then(|| (segment.base + start, segment.base + end))
    }

    /// `unmap_block`: unmaps the whole granules of a free block.
    pub(super) fn unmap_block(&mut self, id: BlockId, context: StackId, device: &mut dyn DeviceMemory) {
        // A block that spans no whole granule stays mapped.
        let Some((start, end)) = self.whole_granule_range(id) else { return };
        let block = self.blocks[id];
        device.unmap(start, end - start);
        self.remove_from_free_list(id);
        if block.addr < start {
            let head = self.split_front(id, start - block.addr);
            self.blocks[head].context = StackId::default();
            self.insert_free(head);
        }
        if end < block.end() {
            let tail = self.split_back(id, end - start, PoolBlockState::Free);
            self.insert_free(tail);
        }
        self.blocks[id].state = PoolBlockState::Unmapped;
        let hole = self.blocks[id];
        self.try_merge_blocks(id, hole.prev);
        self.try_merge_blocks(id, self.blocks[id].next);
        self.insert_unmapped(id);
        let (pool, is_small) = self.pools.pool_and_size_class(block.free_list);
        self.reserved_bytes = self.reserved_bytes.saturating_sub(hole.size);
        self.statistics.decrease_reserved(pool, is_small, hole.size);
        if pool != DEFAULT_POOL && self.behaviour.has(Rule::UnmapCountsForPool) {
            let counter = &mut self.pools.get_mut(pool).cuda_malloc_count;
            *counter -= 1;
            if *counter < 0 {
                self.undefined_behaviour.get_or_insert(
                    "PyTorch counts an expandable private pool's memory once per request when it is mapped but once \
                    per range when it is unmapped, and its own assertion on that count fails here",
                );
            }
        }
        self.statistics.num_device_free += 1;
        let cause = if context == StackId::default() { block.segment_context } else { context };
        self.record_trace(Action::SegmentUnmap, &hole, hole.size, cause);
    }

    /// Releases the reservation if nothing is mapped in it any more.
    pub(super) fn release_expandable_segment(&mut self, id: BlockId, device: &mut dyn DeviceMemory) {
        let block = self.blocks[id];
        if block.is_split() || block.state != PoolBlockState::Unmapped {
            return;
        }
        if let Some(segment) = block.expandable_segment.and_then(|number| self.expandable_segments.get(number as usize))
        {
            device.release(segment.base, segment.size);
        }
        self.remove_from_free_list(id);
        self.blocks.remove(id);
    }
}
