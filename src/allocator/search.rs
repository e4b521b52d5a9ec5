//! Which free block serves a request.

use super::block::{BlockId, State};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{DEFAULT_POOL, Need, Request, Service};
use super::size::{is_small_request, round_size};
use crate::base::ids::PoolId;

impl CachingAllocator {
    /// Whether a free block would serve the request now.
    pub fn has_fit(&mut self, request: &Request<'_>) -> bool {
        self.fit(request).is_some()
    }

    /// The bytes of the free block that would serve the request now.
    pub fn fit_for(&mut self, request: &Request<'_>) -> Option<u64> {
        self.fit(request).map(|key| key.size)
    }

    /// The free block that would serve the request now.
    pub(super) fn fit(&mut self, request: &Request<'_>) -> Option<FreeKey> {
        let size = round_size(request.size, &self.settings);
        let free_list = self.pools.free_list(request.pool, request.stream, is_small_request(size));
        self.candidate(free_list, size, self.is_expandable(request.pool))
    }

    /// The best free block, taken out of its pool. Only one candidate is looked at: where the size
    /// rules refuse it, a later one that they would accept is not tried.
    pub(super) fn get_free_block(&mut self, need: &Need, uses_expandable: bool) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools.count_search(need.free_list);
        }
        let found = self.candidate(need.free_list, need.size, uses_expandable)?;
        self.pools.free_lists[need.free_list as usize].free.remove(&found);
        Some(found.id)
    }

    #[inline]
    pub(super) fn candidate(
        &self,
        free_list: u32,
        size: u64,
        uses_expandable: bool,
    ) -> Option<FreeKey> {
        let free_list = &self.pools.free_lists[free_list as usize];
        let mut fitting = free_list.free.from(FreeKey::at_least(size));
        let mut found = *fitting.next()?;
        if self.blocks[found.id].is_expandable() {
            if uses_expandable {
                // The block that would be left with the least room to grow into.
                let room = |key: &FreeKey| {
                    let next = self.blocks[key.id].next.some().map(|id| &self.blocks[id]);
                    let unmapped = next.filter(|block| block.state == State::Unmapped);
                    key.size.saturating_add(unmapped.map_or(0, |block| block.size))
                };
                while self.blocks[found.id].is_expandable()
                    && let Some(next) = fitting.next()
                    && room(next) < room(&found)
                {
                    found = *next;
                }
            } else {
                found = *fitting.find(|key| !self.blocks[key.id].is_expandable())?;
            }
        }
        self.accepts(found.size, size).then_some(found)
    }

    /// Whether the rules for blocks that are never split let a request have a block.
    #[inline]
    pub(super) fn accepts(&self, block: u64, rounded: u64) -> bool {
        let limit = self.settings.max_split_size;
        if rounded < limit {
            block < limit
        } else {
            block < rounded.saturating_add(self.settings.max_non_split_rounding)
        }
    }

    /// Whether the rule for expandable memory applies to requests of `pool`.
    pub(super) fn is_expandable(&self, pool: PoolId) -> bool {
        self.settings.expandable_segments
            && (pool == DEFAULT_POOL
                || !self.behaviour.custom_pools_stay_whole
                || self.pools.get(pool).is_none_or(|pool| !pool.has_custom_allocator))
    }

    /// A block of a lent pool for a request of the default pool.
    pub(super) fn borrow_block(
        &mut self,
        need: &Need,
        uses_expandable: bool,
    ) -> Option<(BlockId, Need)> {
        if need.pool != DEFAULT_POOL {
            return None;
        }
        for pool in self.lent.clone() {
            let free_list = self.pools.free_list(pool, need.stream, need.is_small);
            let lent = Need { free_list, pool, ..*need };
            if let Some(id) = self.get_free_block(&lent, uses_expandable) {
                self.service = Service::Lent;
                return Some((id, lent));
            }
        }
        None
    }

    /// The ages of free blocks count, and are looked at when memory has to grow.
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }
}
