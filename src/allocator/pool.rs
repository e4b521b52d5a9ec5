//! Pools: which free blocks there are, in the order in which they are searched.

use std::collections::{BTreeMap, BTreeSet};

use super::block::BlockId;
use crate::ids::{PoolId, row};

/// A free block where it stands in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    pub(super) size: u64,
    /// 0 in releases that do not look at it.
    pub(super) registration: u32,
    pub(super) addr: u64,
    pub(super) id: BlockId,
}

impl FreeKey {
    /// Stands before every block of `size` bytes or more.
    pub(super) fn at_least(size: u64) -> Self {
        Self { size, registration: 0, addr: 0, id: BlockId::ZERO }
    }

    /// Stands after every block of this size.
    pub(super) fn last_alike(self) -> Self {
        Self { registration: u32::MAX, addr: u64::MAX, id: BlockId::NONE, ..self }
    }
}

/// The free blocks of one half of a pool and one stream: where a block may be used again.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// PyTorch keeps one set a pool in order of (stream, size, ..); a search never leaves its stream.
    pub(super) free: BTreeSet<FreeKey>,
    /// Addresses of expandable segments with no memory behind them.
    pub(super) unmapped: BTreeMap<u64, BlockId>,
}

/// One half of a pool: for requests up to 1 MiB, or for larger ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Half {
    /// Homes by stream.
    pub(super) homes: BTreeMap<u64, u32>,
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
pub(super) struct Pools {
    by_id: BTreeMap<PoolId, Pool>,
    pub(super) homes: Vec<Home>,
    /// The home asked for last: nearly always the next one too.
    last: Option<(PoolId, u64, [u32; 2])>,
}

impl Pools {
    /// The home of (pool, stream, half), made when it is new.
    #[inline]
    pub(super) fn home(&mut self, pool: PoolId, stream: u64, is_small: bool) -> u32 {
        match self.last {
            Some((p, s, homes)) if p == pool && s == stream => homes[usize::from(is_small)],
            _ => {
                let homes = [false, true].map(|half| self.find_home(pool, stream, half));
                self.last = Some((pool, stream, homes));
                homes[usize::from(is_small)]
            }
        }
    }

    fn find_home(&mut self, pool: PoolId, stream: u64, is_small: bool) -> u32 {
        let half = self.by_id.entry(pool).or_default().half_mut(is_small);
        *half.homes.entry(stream).or_insert_with(|| {
            self.homes.push(Home {
                pool,
                is_small,
                stream,
                free: BTreeSet::new(),
                unmapped: BTreeMap::new(),
            });
            row(self.homes.len() - 1)
        })
    }

    /// The pool of a home, and whether it is the half for small requests.
    #[inline]
    pub(super) fn kind_of(&self, home: u32) -> (PoolId, bool) {
        let home = &self.homes[home as usize];
        (home.pool, home.is_small)
    }

    pub(super) fn get(&self, pool: PoolId) -> Option<&Pool> {
        self.by_id.get(&pool)
    }

    pub(super) fn get_mut(&mut self, pool: PoolId) -> &mut Pool {
        self.by_id.entry(pool).or_default()
    }

    /// The homes of one half of `pool`, by stream.
    pub(super) fn homes_of(&self, pool: PoolId, is_small: bool) -> Vec<u32> {
        self.by_id
            .get(&pool)
            .map_or_else(Vec::new, |p| p.half(is_small).homes.values().copied().collect())
    }
}
