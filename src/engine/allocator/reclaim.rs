//! Releasing cached memory to the device: garbage collection, release for a request, `empty_cache`.

use super::block::BlockId;
use super::caching::{CachingAllocator, fraction_of};
use super::free_set::FreeKey;
use super::request::{AllocParams, DEFAULT_POOL, PendingFreeId};
use crate::allocator::device::DeviceMemory;
use crate::allocator::releases::Rule;
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId};

impl CachingAllocator {
    /// `garbage_collect_cached_blocks`: releases the segments of the default large pool that have been free for
    /// longest, until no more than the threshold is reserved.
    pub(super) fn garbage_collect_cached_blocks(&mut self, context: StackId, device: &mut dyn DeviceMemory) {
        let threshold = self.settings.garbage_collection_threshold;
        let threshold = self.allowed_memory_maximum.map_or(u64::MAX, |limit| fraction_of(limit, threshold));
        if self.reserved_bytes <= threshold {
            return;
        }
        let target = self.reserved_bytes - threshold;
        // Unsplit expandable blocks count in the average age, though they are not released.
        let (mut segments, mut total_age) = (Vec::new(), 0u64);
        let Some(block_pool) = self.pools.block_pool(DEFAULT_POOL, false) else { return };
        for free_list in block_pool.free_lists.values() {
            let releasable = self.pools.free_lists[*free_list as usize].releasable.iter();
            for key in releasable.filter(|key| !self.blocks[key.id].is_split()) {
                let age = block_pool.get_free_block_calls.saturating_sub(self.blocks[key.id].gc_count_base);
                total_age += age;
                segments.push((key.id, age));
            }
        }
        let (mut count, mut released, mut freed_any) = (segments.len(), 0u64, true);
        while released < target && freed_any && count > 0 {
            freed_any = false;
            let average = total_age as f64 / count as f64;
            segments.retain(|&(id, age)| {
                let block = &self.blocks[id];
                if block.is_expandable() || (age as f64) < average {
                    return true;
                }
                released = released.saturating_add(block.size);
                total_age -= age;
                count -= 1;
                freed_any = true;
                self.release_block(id, context, device);
                false
            });
        }
        self.garbage_collected_bytes += released;
    }

    /// `release_available_cached_blocks`: releases one segment that is large enough for the request, or several
    /// smaller ones, largest first. They stay released even if they were not enough.
    pub(super) fn release_available_cached_blocks(
        &mut self,
        params: &AllocParams,
        device: &mut dyn DeviceMemory,
    ) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let min_bytes = params.size.max(limit);
        let free_list = &self.pools.free_lists[params.free_list as usize];
        let from = FreeKey::at_least(min_bytes);
        let larger = free_list.free.range_from(from).next().copied();
        if !self.behaviour.has(Rule::ReclaimSkipsExpandable) && !self.expandable_segments.is_empty() {
            let mut smaller = free_list.free.range_before_rev(from).take_while(|key| key.size >= limit);
            let finds_expandable = match &larger {
                Some(key) => self.blocks[key.id].is_expandable(),
                None => smaller.any(|key| self.blocks[key.id].is_expandable()),
            };
            if finds_expandable {
                self.undefined_behaviour.get_or_insert(
                    "before 2.8 PyTorch releases expandable memory here as if it were a whole segment, and \
                    its own assertion fails",
                );
            }
        }
        // A what-if may set `max_split_size` after blocks were split. PyTorch never meets such a block here, and
        // would release a part of a segment.
        let free_list = &self.pools.free_lists[params.free_list as usize];
        if let Some(key) = larger.filter(|key| self.is_whole_segment(key)) {
            self.release_block(key.id, params.context, device);
            return true;
        }
        let (mut released, mut smaller) = (0u64, Vec::new());
        let releasable = free_list.releasable.range_before_rev(from).take_while(|key| key.size >= limit);
        for key in releasable.filter(|key| self.is_whole_segment(key)) {
            if released >= min_bytes {
                break;
            }
            released = released.saturating_add(key.size);
            smaller.push(key.id);
        }
        for id in smaller {
            self.release_block(id, params.context, device);
        }
        released >= min_bytes
    }

    fn is_whole_segment(&self, key: &FreeKey) -> bool {
        let block = &self.blocks[key.id];
        !block.is_expandable() && !block.is_split()
    }

    /// `release_cached_blocks` (`empty_cache()`), for all pools or for one: waits for every pending free, then
    /// releases free segments and whole free granules. `freeable` are the private pools without users.
    pub fn release_cached_blocks(
        &mut self,
        only_pool: Option<PoolId>,
        wait_order: &[PendingFreeId],
        freeable: &[PoolId],
        context: StackId,
        device: &mut dyn DeviceMemory,
    ) {
        if only_pool.is_none() {
            self.synchronize_and_free_events(None, wait_order, context);
            self.release_blocks(DEFAULT_POOL, false, context, device);
            self.release_blocks(DEFAULT_POOL, true, context, device);
        }
        for pool in freeable.iter().filter(|pool| only_pool.is_none_or(|only_pool| only_pool == **pool)) {
            if only_pool.is_some() {
                self.synchronize_and_free_events(only_pool, wait_order, context);
            }
            self.release_blocks(*pool, true, context, device);
            self.release_blocks(*pool, false, context, device);
        }
    }

    /// `synchronize_and_free_events`, for all pools or for `pool`.
    fn synchronize_and_free_events(&mut self, pool: Option<PoolId>, wait_order: &[PendingFreeId], context: StackId) {
        self.statistics.num_sync_all_streams += 1;
        let rest: Vec<PendingFreeId> = self.pending.keys().copied().collect();
        for pending_id in wait_order.iter().chain(&rest) {
            if pool.is_none() || self.pool_of_pending(*pending_id) == pool {
                self.complete_free(*pending_id, context);
            }
        }
    }

    /// Releases the free segments of one block pool, then the whole granules of its free expandable blocks.
    fn release_blocks(&mut self, pool: PoolId, is_small: bool, context: StackId, device: &mut dyn DeviceMemory) {
        let filled = std::mem::take(&mut self.pools.block_pool_mut(pool, is_small).filled);
        let releasable = filled.values().flat_map(|number| self.pools.free_lists[*number as usize].releasable.iter());
        let (expandable, whole_segments): (Vec<BlockId>, Vec<BlockId>) =
            releasable.map(|key| key.id).partition(|id| self.blocks[*id].is_expandable());
        for id in whole_segments {
            self.release_block(id, context, device);
        }
        for id in expandable {
            self.unmap_block(id, context, device);
            self.release_expandable_segment(id, device);
        }
    }

    /// Whether [`CachingAllocator::release_cached_blocks`] would release anything, pending frees aside.
    pub fn has_releasable_memory(&self, freeable: &[PoolId]) -> bool {
        std::iter::once(&DEFAULT_POOL).chain(freeable).any(|pool| {
            [true, false].into_iter().any(|is_small| {
                let filled = self.pools.block_pool(*pool, is_small).map(|block_pool| block_pool.filled.values());
                let mut filled = filled.into_iter().flatten();
                filled.any(|number| !self.pools.free_lists[*number as usize].releasable.is_empty())
            })
        })
    }

    /// Whether a free block, or a part of it, can be released.
    pub(super) fn is_releasable(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        if block.is_expandable() { self.whole_granule_range(id).is_some() } else { !block.is_split() }
    }

    /// Releases a whole segment.
    fn release_block(&mut self, id: BlockId, context: StackId, device: &mut dyn DeviceMemory) {
        let block = self.blocks[id];
        let (pool, is_small) = self.pools.pool_and_size_class(block.free_list);
        self.statistics.num_device_free += 1;
        let cause = if context == StackId::default() { block.segment_context } else { context };
        self.record_trace(Action::SegmentFree, &block, block.size, cause);
        device.free(block.addr, block.size);
        self.reserved_bytes = self.reserved_bytes.saturating_sub(block.size);
        if pool != DEFAULT_POOL {
            self.pools.get_mut(pool).cuda_malloc_count -= 1;
        }
        self.statistics.segment.decrease(is_small, 1);
        self.statistics.decrease_reserved(pool, is_small, block.size);
        if block.size >= self.settings.max_split_size {
            self.statistics.oversize_segments.decrease(1);
        }
        self.remove_from_free_list(id);
        self.blocks.remove(id);
    }
}
