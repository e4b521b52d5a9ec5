//! Pools: which free blocks there are, in the order in which they are searched.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::block::{BlockId, PoolBlock};
use super::free_set::{FreeKey, FreeSet};
use crate::base::ids::{PoolId, row};
use crate::base::intern::SeededMap;

/// The free blocks of one half of a pool and one stream: where a block may be used again.
#[derive(Debug, Clone)]
pub(super) struct FreeList {
    pub(super) pool: PoolId,
    /// The row of its pool.
    owner: u32,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// PyTorch keeps one set a pool in order of (stream, size, ..); a search never leaves its stream.
    pub(super) free: FreeSet,
    pub(super) unmapped: Unmapped,
    /// Whether it is among [`Half::filled`].
    is_filled: bool,
}

/// Addresses of expandable segments with no memory behind them.
#[derive(Debug, Clone, Default)]
pub(super) struct Unmapped {
    /// Parts of segments, by address.
    pub(super) holes: BTreeMap<u64, BlockId>,
    /// Segments with no memory at all, by size and address: every request that fails may leave one.
    pub(super) empty: BTreeMap<u64, BTreeMap<u64, BlockId>>,
}

impl Unmapped {
    pub(super) fn insert(&mut self, id: BlockId, block: &PoolBlock) {
        let set = if block.is_split() {
            &mut self.holes
        } else {
            self.empty.entry(block.size).or_default()
        };
        set.insert(block.addr, id);
    }

    pub(super) fn remove(&mut self, block: &PoolBlock) {
        if block.is_split() {
            self.holes.remove(&block.addr);
        } else if let Some(alike) = self.empty.get_mut(&block.size) {
            alike.remove(&block.addr);
            if alike.is_empty() {
                self.empty.remove(&block.size);
            }
        }
    }

    /// The first empty segment, by address, of at least `size` bytes. Few sizes differ: one for each device and
    /// setting.
    pub(super) fn first_empty(&self, size: u64) -> Option<(u64, BlockId)> {
        let firsts = self.empty.range(size..).filter_map(|(_, alike)| alike.first_key_value());
        firsts.map(|(addr, id)| (*addr, *id)).min_by_key(|(addr, _)| *addr)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&u64, &BlockId)> {
        self.holes.iter().chain(self.empty.values().flatten())
    }
}

/// One half of a pool: for requests up to 1 MiB, or for larger ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Half {
    /// Homes by stream.
    pub(super) free_lists: BTreeMap<u64, u32>,
    /// Those that got a block since the pool was last released. Nothing in the others can be given back: a program of
    /// many streams that fails again and again does not look through all of them each time.
    filled: Vec<u32>,
    /// Searches so far, counted only while garbage collection is on.
    pub(super) searches: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    small: Half,
    large: Half,
    /// `cudaMalloc_count`: what the pool holds from the device. Not reliable with expandable segments.
    pub(super) device_allocations: i64,
    /// Its memory comes from an allocator of the program's own, whole segments at a time.
    pub(super) has_custom_allocator: bool,
    /// Blocks are handed out whole (`MemPool(no_split=True)`).
    pub(super) no_split: bool,
}

impl Pool {
    pub(super) fn half(&self, is_small: bool) -> &Half {
        if is_small { &self.small } else { &self.large }
    }

    pub(super) fn half_mut(&mut self, is_small: bool) -> &mut Half {
        if is_small { &mut self.small } else { &mut self.large }
    }
}

/// All pools of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolSet {
    rows: Vec<Pool>,
    by_id: FxHashMap<PoolId, u32>,
    pub(super) free_lists: Vec<FreeList>,
    /// The free lists of (pool, stream), by half.
    by_lane: SeededMap<(PoolId, u64), [u32; 2]>,
    /// The lane asked for last: nearly always the next one too.
    last: Option<(PoolId, u64, [u32; 2])>,
}

impl PoolSet {
    /// The free list of (pool, stream, half), made when it is new.
    #[inline]
    pub(super) fn free_list(&mut self, pool: PoolId, stream: u64, is_small: bool) -> u32 {
        match self.last {
            Some((p, s, free_lists)) if p == pool && s == stream => {
                free_lists[usize::from(is_small)]
            }
            _ => self.find_home(pool, stream)[usize::from(is_small)],
        }
    }

    fn find_home(&mut self, pool: PoolId, stream: u64) -> [u32; 2] {
        let known = self.by_lane.get(&(pool, stream)).copied();
        let free_lists = known.unwrap_or_else(|| {
            let owner = self.row(pool);
            let free_lists = [false, true].map(|is_small| {
                let free_list = row(self.free_lists.len());
                let (free, unmapped) = (FreeSet::default(), Unmapped::default());
                let is_filled = false;
                self.free_lists.push(FreeList {
                    pool,
                    owner,
                    is_small,
                    stream,
                    free,
                    unmapped,
                    is_filled,
                });
                self.rows[owner as usize].half_mut(is_small).free_lists.insert(stream, free_list);
                free_list
            });
            self.by_lane.insert((pool, stream), free_lists);
            free_lists
        });
        self.last = Some((pool, stream, free_lists));
        free_lists
    }

    /// The row of `pool`, made when it is new.
    fn row(&mut self, pool: PoolId) -> u32 {
        *self.by_id.entry(pool).or_insert_with(|| {
            self.rows.push(Pool::default());
            row(self.rows.len() - 1)
        })
    }

    /// The pool of a free list, and whether it is the half for small requests.
    #[inline]
    pub(super) fn kind_of(&self, free_list: u32) -> (PoolId, bool) {
        let free_list = &self.free_lists[free_list as usize];
        (free_list.pool, free_list.is_small)
    }

    /// What is known of the pool of a free list.
    #[inline]
    pub(super) fn owner(&self, free_list: u32) -> &Pool {
        &self.rows[self.free_lists[free_list as usize].owner as usize]
    }

    /// A request is about to search a free list of its pool.
    pub(super) fn count_search(&mut self, free_list: u32) {
        let free_list = &self.free_lists[free_list as usize];
        self.rows[free_list.owner as usize].half_mut(free_list.is_small).searches += 1;
    }

    pub(super) fn get(&self, pool: PoolId) -> Option<&Pool> {
        self.by_id.get(&pool).map(|row| &self.rows[*row as usize])
    }

    pub(super) fn get_mut(&mut self, pool: PoolId) -> &mut Pool {
        let row = self.row(pool);
        &mut self.rows[row as usize]
    }

    /// Puts a free block in its list.
    #[inline]
    pub(super) fn insert(&mut self, number: u32, key: FreeKey) {
        let free_list = &mut self.free_lists[number as usize];
        free_list.free.insert(key);
        if !free_list.is_filled {
            free_list.is_filled = true;
            let (owner, is_small) = (free_list.owner as usize, free_list.is_small);
            self.rows[owner].half_mut(is_small).filled.push(number);
        }
    }

    /// The free lists of one half of `pool` that got a block since this was last asked, by stream.
    pub(super) fn take_filled(&mut self, pool: PoolId, is_small: bool) -> Vec<u32> {
        let Some(owner) = self.by_id.get(&pool).copied() else { return Vec::new() };
        let half = self.rows[owner as usize].half_mut(is_small);
        let mut filled = std::mem::take(&mut half.filled);
        filled.sort_unstable_by_key(|number| self.free_lists[*number as usize].stream);
        for number in &filled {
            self.free_lists[*number as usize].is_filled = false;
        }
        filled
    }

    /// The same, which may be asked again.
    pub(super) fn filled(&self, pool: PoolId, is_small: bool) -> &[u32] {
        self.get(pool).map_or(&[], |pool| &pool.half(is_small).filled)
    }

    /// The free lists of one half of `pool`, by stream.
    pub(super) fn homes_of(&self, pool: PoolId, is_small: bool) -> Vec<u32> {
        self.get(pool)
            .map_or_else(Vec::new, |p| p.half(is_small).free_lists.values().copied().collect())
    }
}
