//! Pools and their free blocks, in search order.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::block::{BlockId, PoolBlock, PoolBlockState};

use super::free_set::{FreeKey, FreeSet};
use crate::allocator::device::{FreeRange, FreeRanges};
use crate::base::ids::{PoolId, to_u32};
use crate::base::intern::SeededMap;

/// The free blocks of one [`BlockPool`] and one stream. A block returns to the free list it came from.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeList {
    pub(super) pool: PoolId,
    /// Row of its pool in [`PoolSet::rows`].
    pool_row: u32,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// PyTorch keeps one set per `BlockPool`, sorted by (stream, size, ..). A search stays within one stream, so
    /// a set per stream gives the same order.
    pub(super) free: FreeSet,
    pub(super) releasable: Releasable,
    pub(super) unmapped: Unmapped,
    /// Whether it is listed in [`BlockPool::filled`].
    is_filled: bool,
}

/// The free blocks that could be released, so that a release does not search all free blocks: after many failed
/// requests most of them are parts of segments in use. Whether a free block is one of these cannot change: its neighbours
/// are in use, or of another segment.
#[derive(Debug, Clone, Default)]
pub(super) struct Releasable {
    /// Blocks that are whole segments, or whole expandable segments.
    pub(super) unsplit: FreeSet,
    /// Blocks of expandable segments with at least one whole granule.
    pub(super) granules: FreeSet,
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

/// The parts of a free block that could be released.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReleasablePart {
    pub(super) is_unsplit: bool,
    pub(super) has_granule: bool,
}

/// `BlockPool`: the blocks of a pool for requests of up to 1 MiB, or those for larger ones.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockPool {
    /// Free lists by stream.
    pub(super) free_lists: BTreeMap<u64, u32>,
    /// Free lists that got a releasable block since the pool was last released. The others hold nothing releasable, so a program
    /// with many streams and many failures does not search all of them each time.
    filled: Vec<u32>,
    /// `get_free_blocks_call_count`; counted only while garbage collection is on.
    pub(super) get_free_block_calls: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    small: BlockPool,
    large: BlockPool,
    /// `cudaMalloc_count`: device allocations of a private pool. PyTorch miscounts it with expandable segments.
    pub(super) cuda_malloc_count: i64,
    /// Its segments come from an allocator that the program supplied.
    pub(super) has_custom_allocator: bool,
    /// Blocks are never split (`MemPool(no_split=True)`).
    pub(super) no_split: bool,
}

impl Pool {
    pub(super) fn block_pool(&self, is_small: bool) -> &BlockPool {
        if is_small { &self.small } else { &self.large }
    }

    pub(super) fn block_pool_mut(&mut self, is_small: bool) -> &mut BlockPool {
        if is_small { &mut self.small } else { &mut self.large }
    }
}

/// All pools of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolSet {
    rows: Vec<Pool>,
    by_id: FxHashMap<PoolId, u32>,
    pub(super) free_lists: Vec<FreeList>,
    /// The free lists of (pool, stream): `[large, small]`.
    by_pool_and_stream: SeededMap<(PoolId, u64), [u32; 2]>,
    /// The last lookup. Most requests repeat it.
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
        let existing = self.by_pool_and_stream.get(&(pool, stream)).copied();
        let free_lists = existing.unwrap_or_else(|| {
            let pool_row = self.row_of(pool);
            let free_lists = [false, true].map(|is_small| {
                let free_list = to_u32(self.free_lists.len());
                self.free_lists.push(FreeList { pool, pool_row, is_small, stream, ..FreeList::default() });
                self.rows[pool_row as usize].block_pool_mut(is_small).free_lists.insert(stream, free_list);
                free_list
            });
            self.by_pool_and_stream.insert((pool, stream), free_lists);
            free_lists
        });
        self.last_lookup = Some((pool, stream, free_lists));
        free_lists
    }

    /// The row of `pool`; adds it if it is new.
    fn row_of(&mut self, pool: PoolId) -> u32 {
        *self.by_id.entry(pool).or_insert_with(|| {
            self.rows.push(Pool::default());
            to_u32(self.rows.len() - 1)
        })
    }

    #[inline]
    pub(super) fn pool_and_size_class(&self, free_list: u32) -> (PoolId, bool) {
        let free_list = &self.free_lists[free_list as usize];
        (free_list.pool, free_list.is_small)
    }

    #[inline]
    pub(super) fn pool_of(&self, free_list: u32) -> &Pool {
        &self.rows[self.free_lists[free_list as usize].pool_row as usize]
    }

    /// Counts a call of `get_free_block`: blocks of this pool grow older.
    pub(super) fn count_search(&mut self, free_list: u32) {
        let free_list = &self.free_lists[free_list as usize];
        self.rows[free_list.pool_row as usize].block_pool_mut(free_list.is_small).get_free_block_calls += 1;
    }

    pub(super) fn get(&self, pool: PoolId) -> Option<&Pool> {
        self.by_id.get(&pool).map(|row| &self.rows[*row as usize])
    }

    pub(super) fn get_mut(&mut self, pool: PoolId) -> &mut Pool {
        let row = self.row_of(pool);
        &mut self.rows[row as usize]
    }

    /// Adds a free block. `part` could be released.
    #[inline]
    pub(super) fn insert(&mut self, number: u32, key: FreeKey, part: ReleasablePart) {
        let free_list = &mut self.free_lists[number as usize];
        free_list.free.insert(key);
        if part.is_unsplit {
            free_list.releasable.unsplit.insert(key);
        }
        if part.has_granule {
            free_list.releasable.granules.insert(key);
        }
        if (part.is_unsplit || part.has_granule) && !free_list.is_filled {
            free_list.is_filled = true;
            let (pool_row, is_small) = (free_list.pool_row as usize, free_list.is_small);
            self.rows[pool_row].block_pool_mut(is_small).filled.push(number);
        }
    }

    /// Removes a free block; `part` is that of its insertion.
    #[inline]
    pub(super) fn remove(&mut self, number: u32, key: &FreeKey, part: ReleasablePart) {
        let free_list = &mut self.free_lists[number as usize];
        free_list.free.remove(key);
        if part.is_unsplit {
            free_list.releasable.unsplit.remove(key);
        }
        if part.has_granule {
            free_list.releasable.granules.remove(key);
        }
    }

    /// Takes the free lists in [`BlockPool::filled`], sorted by stream.
    pub(super) fn take_filled(&mut self, pool: PoolId, is_small: bool) -> Vec<u32> {
        // A pool that was never used is not listed and holds nothing.
        let Some(pool_row) = self.by_id.get(&pool).copied() else { return Vec::new() };
        let block_pool = self.rows[pool_row as usize].block_pool_mut(is_small);
        let mut filled = std::mem::take(&mut block_pool.filled);
        filled.sort_unstable_by_key(|number| self.free_lists[*number as usize].stream);
        for number in &filled {
            self.free_lists[*number as usize].is_filled = false;
        }
        filled
    }

    pub(super) fn filled(&self, pool: PoolId, is_small: bool) -> &[u32] {
        self.get(pool).map_or(&[], |pool| &pool.block_pool(is_small).filled)
    }

    /// The free lists of one block pool, sorted by stream.
    pub(super) fn free_lists_of(&self, pool: PoolId, is_small: bool) -> Vec<u32> {
        self.get(pool).map_or_else(Vec::new, |p| p.block_pool(is_small).free_lists.values().copied().collect())
    }
}
