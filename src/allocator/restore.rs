//! Putting a private pool back into the state of a checkpoint, as the trees of CUDA graphs do.

use super::block::BlockId;
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{Need, Request, Service};

impl CachingAllocator {
    /// Hands out the whole of `request` at `addr`, where a free block begins, and leaves the rest of that free,
    /// whatever the rules for cutting: each block of a checkpoint is made again as large as it was. `None` where
    /// there is no such block.
    pub fn restore(&mut self, request: &Request<'_>, addr: u64) -> Option<BlockId> {
        let id = [true, false].into_iter().find_map(|is_small| {
            let homes = self.pools.homes_of(request.pool, is_small);
            homes.into_iter().find_map(|free_list| {
                let free_list = &self.pools.free_lists[free_list as usize];
                let mut large_enough = free_list.free.from(FreeKey::at_least(request.size));
                let found = large_enough.find(|key| key.addr == addr);
                found.filter(|_| free_list.stream == request.stream).map(|key| key.id)
            })
        })?;
        let block = self.blocks[id];
        let (pool, is_small) = self.pools.kind_of(block.free_list);
        let need = Need {
            free_list: block.free_list,
            pool,
            is_small,
            stream: request.stream,
            size: request.size,
            segment: 0,
            is_expandable: block.is_expandable(),
            context: request.context,
        };
        self.service = Service::Cached;
        self.take_out(id);
        Some(self.hand_out_cut(id, &need, request.size, block.size > request.size))
    }
}
