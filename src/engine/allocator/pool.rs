//! Pools and their free blocks, in search order.

use std::collections::BTreeMap;

use super::block::{BlockId, PoolBlock, PoolBlockState};
use super::free_set::{FreeKey, FreeSet};
use crate::allocator::device::{FreeRange, FreeRanges};
use crate::base::ids::{PoolId, to_u32};

/// The free blocks of one [`BlockPool`] and one stream. A block returns to the free list it came from.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeList {
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// PyTorch keeps one set per `BlockPool`, sorted by (stream, size, ..). A search stays within one stream, so
    /// a set per stream gives the same order.
    pub(super) free: FreeSet,
    /// The free blocks that could be released: whole segments, and blocks of expandable segments with at least one whole
    /// granule. A release does not search all free blocks, since after many failed requests most of them are parts of
    /// segments in use. Whether a free block is one of these cannot change: its neighbours are in use, or of another
    /// segment.
    pub(super) releasable: FreeSet,
    pub(super) unmapped: Unmapped,
}

/// Unmapped blocks of expandable segments.
#[derive(Debug, Clone, Default)]
pub(super) struct Unmapped {
    /// Unmapped blocks in segments that also have mapped ones, by address.
    pub(super) holes: BTreeMap<u64, BlockId>,
    /// Runs of holes and free blocks that are neighbours; those with a hole are usable. `None` as long as there are so few
    /// holes that a search takes no time.
    pub(super) runs: Option<FreeRanges>,
    /// Whole segments with nothing mapped, by size and address. Each failed request may leave one.
    pub(super) empty: BTreeMap<u64, BTreeMap<u64, BlockId>>,
}

impl Unmapped {
    pub(super) fn insert(&mut self, id: BlockId, block: &PoolBlock) {
        let set = if block.is_split() { &mut self.holes } else { self.empty.entry(block.size).or_default() };
        set.insert(block.addr, id);
    }

    pub(super) fn remove(&mut self, block: &PoolBlock) {
        if block.is_split() {
            self.holes.remove(&block.addr);
        } else if let Some(same_size) = self.empty.get_mut(&block.size) {
            same_size.remove(&block.addr);
            if same_size.is_empty() {
                self.empty.remove(&block.size);
            }
        }
    }

    /// `block` of an expandable segment has become free or unmapped.
    pub(super) fn add_to_runs(&mut self, block: &PoolBlock) {
        let Some(runs) = &mut self.runs else { return };
        let is_usable = block.state == PoolBlockState::Unmapped && block.is_split();
        let run = FreeRange { start: block.addr, end: block.end(), is_usable };
        runs.add(run, [block.prev, block.next].map(|neighbour| neighbour != BlockId::NONE));
    }

    /// `block` of an expandable segment is neither any more; it is not among the holes.
    pub(super) fn cut_from_runs(&mut self, block: &PoolBlock) {
        if let Some(runs) = &mut self.runs {
            runs.cut(block.addr, block.end(), |start, end| self.holes.range(start..end).next().is_some());
        }
    }

    /// The empty segment of at least `size` bytes with the lowest address. There are few sizes: one for each device
    /// and setting.
    pub(super) fn first_empty(&self, size: u64) -> Option<(u64, BlockId)> {
        let firsts = self.empty.range(size..).filter_map(|(_, same_size)| same_size.first_key_value());
        firsts.map(|(addr, id)| (*addr, *id)).min_by_key(|(addr, _)| *addr)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&u64, &BlockId)> {
        self.holes.iter().chain(self.empty.values().flatten())
    }
}

/// `BlockPool`: the blocks of a pool for requests of up to 1 MiB, or those for larger ones.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockPool {
    /// Free lists by stream.
    pub(super) free_lists: BTreeMap<u64, u32>,
    /// Those that got a releasable block since the pool was last released. The others hold nothing releasable, so a program
    /// with many streams and many failures does not search all of them each time.
    pub(super) filled: BTreeMap<u64, u32>,
    /// `get_free_blocks_call_count`; counted only while garbage collection is on.
    pub(super) get_free_block_calls: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    /// `[large, small]`.
    block_pools: [BlockPool; 2],
    /// `cudaMalloc_count`: device allocations of a private pool. PyTorch miscounts it with expandable segments.
    pub(super) cuda_malloc_count: i64,
    /// Its segments come from an allocator that the program supplied.
    pub(super) has_custom_allocator: bool,
    /// Blocks are never split (`MemPool(no_split=True)`).
    pub(super) no_split: bool,
}

/// All pools of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolSet {
    /// By id.
    pools: Vec<Pool>,
    pub(super) free_lists: Vec<FreeList>,
    /// The last lookup: pool, stream, and their free lists `[large, small]`. Most requests repeat it.
    last_lookup: Option<(PoolId, u64, [u32; 2])>,
}

impl PoolSet {
    /// The free list of (pool, stream, size class); adds it if it is new.
    #[inline]
    pub(super) fn free_list(&mut self, pool: PoolId, stream: u64, is_small: bool) -> u32 {
        match self.last_lookup {
            Some((p, s, free_lists)) if p == pool && s == stream => free_lists[usize::from(is_small)],
            _ => self.find_or_add_free_lists(pool, stream)[usize::from(is_small)],
        }
    }

    fn find_or_add_free_lists(&mut self, pool: PoolId, stream: u64) -> [u32; 2] {
        let free_lists = [false, true].map(|is_small| {
            let next = to_u32(self.free_lists.len());
            let free_list = *self.block_pool_mut(pool, is_small).free_lists.entry(stream).or_insert(next);
            if free_list == next {
                self.free_lists.push(FreeList { pool, is_small, stream, ..FreeList::default() });
            }
            free_list
        });
        self.last_lookup = Some((pool, stream, free_lists));
        free_lists
    }

    #[inline]
    pub(super) fn pool_and_size_class(&self, free_list: u32) -> (PoolId, bool) {
        let free_list = &self.free_lists[free_list as usize];
        (free_list.pool, free_list.is_small)
    }

    /// The pool of a free list.
    #[inline]
    pub(super) fn pool_of(&self, free_list: u32) -> &Pool {
        &self.pools[self.free_lists[free_list as usize].pool.index()]
    }

    /// Counts a call of `get_free_block`: blocks of this pool grow older.
    pub(super) fn count_search(&mut self, free_list: u32) {
        let (pool, is_small) = self.pool_and_size_class(free_list);
        self.block_pool_mut(pool, is_small).get_free_block_calls += 1;
    }

    /// `None` for a pool that never held memory.
    pub(super) fn get(&self, pool: PoolId) -> Option<&Pool> {
        self.pools.get(pool.index())
    }

    /// Adds the pool if it is new.
    pub(super) fn get_mut(&mut self, pool: PoolId) -> &mut Pool {
        let index = pool.index();
        if index >= self.pools.len() {
            self.pools.resize_with(index + 1, Pool::default);
        }
        &mut self.pools[index]
    }

    pub(super) fn block_pool(&self, pool: PoolId, is_small: bool) -> Option<&BlockPool> {
        self.get(pool).map(|pool| &pool.block_pools[usize::from(is_small)])
    }

    pub(super) fn block_pool_mut(&mut self, pool: PoolId, is_small: bool) -> &mut BlockPool {
        &mut self.get_mut(pool).block_pools[usize::from(is_small)]
    }

    /// Adds a free block.
    #[inline]
    pub(super) fn insert(&mut self, number: u32, key: FreeKey, is_releasable: bool) {
        let free_list = &mut self.free_lists[number as usize];
        free_list.free.insert(key);
        if is_releasable {
            free_list.releasable.insert(key);
            let (pool, stream, is_small) = (free_list.pool, free_list.stream, free_list.is_small);
            self.block_pool_mut(pool, is_small).filled.insert(stream, number);
        }
    }

    /// Removes a free block; `is_releasable` is that of its insertion.
    #[inline]
    pub(super) fn remove(&mut self, number: u32, key: &FreeKey, is_releasable: bool) {
        let free_list = &mut self.free_lists[number as usize];
        free_list.free.remove(key);
        if is_releasable {
            free_list.releasable.remove(key);
        }
    }
}
