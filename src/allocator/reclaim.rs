//! Giving memory back to the device: garbage collection, release for a request, `empty_cache`.

use super::block::BlockId;
use super::caching::{CachingAllocator, fraction_of};
use super::free_set::FreeKey;
use super::request::{DEFAULT_POOL, Need, Ticket};
use crate::allocator::device::DeviceMemory;
use crate::allocator::terms::Action;
use crate::base::ids::{PoolId, StackId};

impl CachingAllocator {
    /// Gives back segments of the default large pool that were not asked for in a long time, until less
    /// than the threshold is reserved.
    pub(super) fn garbage_collect(&mut self, context: StackId, device: &mut dyn DeviceMemory) {
        let threshold = self.settings.garbage_collection_threshold;
        let threshold = self.limit.map_or(u64::MAX, |limit| fraction_of(limit, threshold));
        if self.reserved <= threshold {
            return;
        }
        let target = self.reserved - threshold;
        let searches = self.pools.get(DEFAULT_POOL).map_or(0, |pool| pool.half(false).searches);
        // Unsplit expandable blocks count in the average, though they are not given back.
        let (mut whole, mut total_age) = (Vec::new(), 0u64);
        for free_list in self.pools.homes_of(DEFAULT_POOL, false) {
            for key in self.pools.free_lists[free_list as usize].free.iter() {
                let block = &self.blocks[key.id];
                if !block.is_split() {
                    let age = searches.saturating_sub(block.since);
                    total_age += age;
                    whole.push((key.id, age));
                }
            }
        }
        let (mut count, mut got, mut freed_any) = (whole.len(), 0u64, true);
        while got < target && freed_any && count > 0 {
            freed_any = false;
            let average = total_age as f64 / count as f64;
            whole.retain(|&(id, age)| {
                let block = &self.blocks[id];
                if block.is_expandable() || (age as f64) < average {
                    return true;
                }
                got = got.saturating_add(block.size);
                total_age -= age;
                count -= 1;
                freed_any = true;
                self.release_block(id, context, device);
                false
            });
        }
        self.collect(got);
    }

    /// Gives back one segment large enough for the request, or several smaller ones, largest first;
    /// those stay given back even when they were not enough.
    pub(super) fn release_available(&mut self, need: &Need, device: &mut dyn DeviceMemory) -> bool {
        let limit = self.settings.max_split_size;
        if limit == u64::MAX {
            return false;
        }
        let enough = need.size.max(limit);
        let free = &self.pools.free_lists[need.free_list as usize].free;
        let from = FreeKey::at_least(enough);
        let is_expandable = |key: &FreeKey| self.blocks[key.id].is_expandable();
        let larger = free.from(from).next().copied();
        let smaller: Vec<FreeKey> =
            free.before(from).take_while(|key| key.size >= limit).copied().collect();
        if !self.behaviour.reclaim_skips_expandable
            && larger.iter().chain(smaller.iter().filter(|_| larger.is_none())).any(is_expandable)
        {
            self.is_undefined(
                "before 2.8 PyTorch gives expandable memory back here as if it were a whole segment, and \
                 its own check of that fails",
            );
        }
        // Part of a segment: a block that was cut before there was a limit, as a what-if may find it.
        // PyTorch knows of none, and would give back what is not a segment.
        let is_whole = |key: &FreeKey| {
            let block = &self.blocks[key.id];
            !block.is_expandable() && !block.is_split()
        };
        let smaller: Vec<FreeKey> = smaller.into_iter().filter(is_whole).collect();
        if let Some(key) = larger.filter(is_whole) {
            self.release_block(key.id, need.context, device);
            return true;
        }
        let mut got = 0u64;
        for key in smaller {
            if got >= enough {
                break;
            }
            got = got.saturating_add(key.size);
            self.release_block(key.id, need.context, device);
        }
        got >= enough
    }

    /// `empty_cache()`, of all pools or of one: waits for every pending block, then gives everything
    /// back that is whole and free. `freeable` are the private pools whose last user is gone.
    pub fn release_cached(
        &mut self,
        only: Option<PoolId>,
        wait_order: &[Ticket],
        freeable: &[PoolId],
        context: StackId,
        device: &mut dyn DeviceMemory,
    ) {
        if only.is_none() {
            self.synchronize(None, wait_order, context);
            self.release_blocks(DEFAULT_POOL, false, context, device);
            self.release_blocks(DEFAULT_POOL, true, context, device);
        }
        for pool in freeable {
            if only.is_some_and(|only| only != *pool) {
                continue;
            }
            if only.is_some() {
                self.synchronize(only, wait_order, context);
            }
            self.release_blocks(*pool, true, context, device);
            self.release_blocks(*pool, false, context, device);
        }
    }

    /// Waits for pending blocks.
    fn synchronize(&mut self, only: Option<PoolId>, wait_order: &[Ticket], context: StackId) {
        self.statistics.num_sync_all_streams += 1;
        let rest: Vec<Ticket> = self.pending.keys().copied().collect();
        for ticket in wait_order.iter().chain(&rest) {
            if only.is_none() || self.pool_of_pending(*ticket) == only {
                self.complete(*ticket, context);
            }
        }
    }

    /// Gives back every whole free segment of one half of a pool, then whole granules of free
    /// expandable memory.
    fn release_blocks(
        &mut self,
        pool: PoolId,
        is_small: bool,
        context: StackId,
        device: &mut dyn DeviceMemory,
    ) {
        let mut expandable = Vec::new();
        let mut whole = Vec::new();
        for free_list in self.pools.take_filled(pool, is_small) {
            for key in self.pools.free_lists[free_list as usize].free.iter() {
                let block = &self.blocks[key.id];
                if block.is_expandable() {
                    expandable.push(key.id);
                } else if !block.is_split() {
                    whole.push(key.id);
                }
            }
        }
        for id in whole {
            self.release_block(id, context, device);
        }
        for id in expandable {
            self.unmap_block(id, context, device);
            self.drop_empty_chain(id, device);
        }
    }

    /// Whether [`CachingAllocator::release_cached`] would give anything back, pending blocks aside.
    pub fn can_release(&self, freeable: &[PoolId]) -> bool {
        std::iter::once(&DEFAULT_POOL).chain(freeable).any(|pool| {
            [true, false].into_iter().any(|is_small| {
                self.pools.filled(*pool, is_small).iter().any(|free_list| {
                    let mut free = self.pools.free_lists[*free_list as usize].free.iter();
                    free.any(|key| self.is_releasable(key.id))
                })
            })
        })
    }

    /// Whether any of a free block can be given back.
    pub(super) fn is_releasable(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        if block.is_expandable() { self.whole_granules(id).is_some() } else { !block.is_split() }
    }

    /// Gives a whole segment back.
    fn release_block(&mut self, id: BlockId, context: StackId, device: &mut dyn DeviceMemory) {
        let block = self.blocks[id];
        let (pool, is_small) = self.pools.kind_of(block.free_list);
        self.statistics.num_device_free += 1;
        let cause = if context == StackId::default() { block.segment_context } else { context };
        self.emit(Action::SegmentFree, &block, block.size, cause);
        device.free(block.addr, block.size);
        self.reserved = self.reserved.saturating_sub(block.size);
        if pool != DEFAULT_POOL {
            self.pools.get_mut(pool).device_allocations -= 1;
        }
        self.statistics.segment.decrease(is_small, 1);
        self.statistics.give_back(pool, is_small, block.size);
        if block.size >= self.settings.max_split_size {
            self.statistics.oversize_segments.decrease(1);
        }
        self.take_out(id);
        self.blocks.remove(id);
    }
}
