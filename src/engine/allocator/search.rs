//! `get_free_block`: the free block that serves a request.

use super::block::{BlockId, PoolBlockState};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{AllocParams, DEFAULT_POOL, Request, ServedBy};
use super::size::{is_small_request, round_size};
use crate::allocator::releases::Rule;
use crate::base::ids::PoolId;

impl CachingAllocator {
    /// Size of the free block that would serve the request now.
    pub fn free_block_size(&mut self, request: &Request<'_>) -> Option<u64> {
        self.find_free_block(request).map(|key| key.size)
    }

    /// The free block that would serve the request now.
    pub(super) fn find_free_block(&mut self, request: &Request<'_>) -> Option<FreeKey> {
        let size = round_size(request.size, &self.settings);
        let free_list = self.pools.free_list(request.pool, request.stream, is_small_request(size));
        let found = self.find_candidate(free_list, size, self.uses_expandable_segments(request.pool));
        found.map(|(key, _)| key)
    }

    /// Removes the best free block from its pool. Like PyTorch, tries only one candidate: if the size rules reject
    /// it, a later block that they would accept is not considered.
    pub(super) fn get_free_block(&mut self, params: &AllocParams) -> Option<BlockId> {
        if self.is_gc_enabled() {
            self.pools.count_search(params.free_list);
        }
        let (found, place) = self.find_candidate(params.free_list, params.size, params.is_expandable)?;
        self.pools.free_lists[params.free_list as usize].free.likely_removal = place;
        self.remove_from_free_list(found.id);
        Some(found.id)
    }

    /// The block, and where the search for it began: mostly its position.
    #[inline]
    fn find_candidate(&self, free_list: u32, size: u64, uses_expandable: bool) -> Option<(FreeKey, (usize, usize))> {
        let free_list = &self.pools.free_lists[free_list as usize];
        let place = free_list.free.find(&FreeKey::at_least(size));
        let mut fitting = free_list.free.range_at(place);
        let mut found = *fitting.next()?;
        if self.blocks[found.id].is_expandable() {
            if uses_expandable {
                // PyTorch prefers the block with the least room to expand.
                while self.blocks[found.id].is_expandable()
                    && let Some(next) = fitting.next()
                    && self.room_to_expand(next) < self.room_to_expand(&found)
                {
                    found = *next;
                }
            } else {
                found = *fitting.find(|key| !self.blocks[key.id].is_expandable())?;
            }
        }
        self.is_acceptable_size(found.size, size).then_some((found, place))
    }

    /// The bytes of a free block and of the unmapped one after it.
    fn room_to_expand(&self, key: &FreeKey) -> u64 {
        let next = self.blocks[key.id].next.as_option().map(|id| &self.blocks[id]);
        let unmapped = next.filter(|block| block.state == PoolBlockState::Unmapped);
        key.size.saturating_add(unmapped.map_or(0, |block| block.size))
    }

    /// Whether the rules for oversize blocks (`max_split_size`) let a request use a block.
    #[inline]
    pub(super) fn is_acceptable_size(&self, block: u64, rounded: u64) -> bool {
        let limit = self.settings.max_split_size;
        let end = if rounded < limit { limit } else { rounded.saturating_add(self.settings.max_non_split_rounding) };
        block < end
    }

    /// Whether the settings apply expandable segments to requests for `pool`.
    pub(super) fn uses_expandable_segments(&self, pool: PoolId) -> bool {
        self.settings.expandable_segments
            && (pool == DEFAULT_POOL
                || !self.behaviour.has(Rule::CustomPoolsNeverExpandable)
                || self.pools.get(pool).is_none_or(|pool| !pool.has_custom_allocator))
    }

    pub(super) fn is_gc_enabled(&self) -> bool {
        self.allowed_memory_maximum.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// Allocates exactly the bytes of `request` at `addr` and leaves the remainder of that free block free: each block
    /// of a checkpoint is restored at its old size, whatever the rules for splitting. `None` if no large enough free
    /// block starts at `addr`.
    pub fn restore(&mut self, request: &Request<'_>, addr: u64) -> Option<BlockId> {
        let id = [true, false].into_iter().find_map(|is_small| {
            let free_list = *self.pools.block_pool(request.pool, is_small)?.free_lists.get(&request.stream)?;
            let free = &self.pools.free_lists[free_list as usize].free;
            let mut large_enough = free.range_from(FreeKey::at_least(request.size));
            large_enough.find(|key| key.addr == addr).map(|key| key.id)
        })?;
        let block = self.blocks[id];
        let (pool, is_small) = self.pools.pool_and_size_class(block.free_list);
        let Request { size, context, .. } = *request;
        let (free_list, is_expandable) = (block.free_list, block.is_expandable());
        let params = AllocParams { free_list, pool, is_small, size, alloc_size: 0, is_expandable, context };
        self.served_by = ServedBy::Cached;
        self.remove_from_free_list(id);
        Some(self.alloc_found_block_with_split(id, &params, size, block.size > size))
    }
}
