//! Restoring a private pool to a checkpoint, as CUDA graph trees do.

use super::block::BlockId;
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{AllocParams, Request, ServedBy};

impl CachingAllocator {
    /// Allocates exactly the bytes of `request` at `addr` and leaves the remainder of that free block free: each block
    /// of a checkpoint is restored at its old size, whatever the rules for splitting. `None` if no large enough free
    /// block starts at `addr`.
    pub fn restore(&mut self, request: &Request<'_>, addr: u64) -> Option<BlockId> {
        let id = [true, false].into_iter().find_map(|is_small| {
            let homes = self.pools.free_lists_of(request.pool, is_small);
            homes.into_iter().find_map(|free_list| {
                let free_list = &self.pools.free_lists[free_list as usize];
                let mut large_enough = free_list.free.range_from(FreeKey::at_least(request.size));
                let found = large_enough.find(|key| key.addr == addr);
                found.filter(|_| free_list.stream == request.stream).map(|key| key.id)
            })
        })?;
        let block = self.blocks[id];
        let (pool, is_small) = self.pools.pool_and_size_class(block.free_list);
        let params = AllocParams {
            free_list: block.free_list,
            pool,
            is_small,
            stream: request.stream,
            size: request.size,
            alloc_size: 0,
            is_expandable: block.is_expandable(),
            context: request.context,
        };
        self.service = ServedBy::Cached;
        self.remove_from_free_list(id);
        Some(self.alloc_found_block_with_split(id, &params, request.size, block.size > request.size))
    }
}
