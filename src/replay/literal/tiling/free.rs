//! Free memory by what could become of it, kept as tiles come and go.
//!
//! The rule is that of the figures at a snapshot: `empty_cache()` gives back whole free segments, and
//! whole granules of expandable ones, of the default pool. What each tile counts for is remembered, so
//! that an entry costs a few additions, whatever the memory around it looks like.

use std::collections::BinaryHeap;

use super::state::{NONE, Tile, Tiling};
use crate::allocator::conf::Settings;
use crate::allocator::{granule_size, whole_granule_bytes};
use crate::base::ids::PoolId;
use crate::snapshot::BlockState;

/// What a literal replay keeps of free blocks; all but sums costs time at every entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracking {
    /// Their sums.
    Totals,
    /// The sums by kind as well: see [`Tiling::free_kinds`].
    FreeKinds,
    /// The sums, and what each entry changed: see `Tiling::changes`.
    Changes,
}

/// Free memory of a device by kind, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeKinds {
    /// What `empty_cache()` would give back to the device.
    pub releasable: u64,
    /// What it would not.
    pub stranded: u64,
    /// The part of the latter that is in private pools.
    pub private_free: u64,
    /// Held from the device by private pools, in use or free.
    pub private_reserved: u64,
    /// The largest free block of any pool and stream.
    pub largest: u64,
}

/// What one tile counts for.
#[derive(Debug, Clone, Copy, Default)]
struct TileCounts {
    /// Expandable memory: where granules begin, from the last multiple of a granule's size on.
    granule_phase: u64,
    size: u64,
    free: u64,
    releasable: u64,
    is_private: bool,
}

/// The sums over all tiles.
#[derive(Debug)]
pub(super) struct FreeKindSums {
    /// Bytes of a granule of large and of small pools.
    granules: [u64; 2],
    /// By tile.
    counts: Vec<TileCounts>,
    releasable: u64,
    private_free: u64,
    private_reserved: u64,
    /// Sizes of free tiles, and sizes that tiles no longer have: those are dropped when they come up.
    free_sizes: BinaryHeap<(u64, u32)>,
}

impl FreeKindSums {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            granules: [false, true].map(|is_small| granule_size(is_small, settings)),
            counts: Vec::new(),
            releasable: 0,
            private_free: 0,
            private_reserved: 0,
            free_sizes: BinaryHeap::new(),
        }
    }

    fn counts_of(&self, id: u32) -> Option<&TileCounts> {
        self.counts.get(id as usize)
    }

    fn granule(&self, is_small: bool) -> u64 {
        self.granules[usize::from(is_small)]
    }

    /// Where granules begin in new tile `id`: as in the memory it continues, else at its own beginning.
    fn set_phase(&mut self, id: u32, tile: &Tile, is_small: bool) {
        let beside = [tile.prev, tile.next].into_iter().find_map(|id| self.counts_of(id));
        let phase = beside.map_or(tile.addr % self.granule(is_small), |share| share.granule_phase);
        let id = id as usize;
        if self.counts.len() <= id {
            self.counts.resize(id + 1, TileCounts::default());
        }
        self.counts[id].granule_phase = phase;
    }

    /// Counts tile `id` anew.
    fn count_tile(&mut self, id: u32, tile: &Tile, is_small: bool, pool: PoolId) {
        let phase = self.counts[id as usize].granule_phase;
        let free = if tile.state == BlockState::Inactive { tile.size } else { 0 };
        let is_private = pool != PoolId::default();
        let releasable = if is_private || free == 0 {
            0
        } else if tile.is_expandable {
            let granule = self.granule(is_small);
            let offset = (tile.addr % granule).saturating_add(granule - phase);
            whole_granule_bytes(offset, free, granule)
        } else if tile.prev == NONE && tile.next == NONE {
            free
        } else {
            0
        };
        self.replace_counts(id, TileCounts { granule_phase: phase, size: tile.size, free, releasable, is_private });
    }

    fn replace_counts(&mut self, id: u32, new: TileCounts) {
        let old = std::mem::replace(&mut self.counts[id as usize], new);
        self.releasable = self.releasable - old.releasable + new.releasable;
        if old.is_private {
            self.private_free -= old.free;
            self.private_reserved -= old.size;
        }
        if new.is_private {
            self.private_free += new.free;
            self.private_reserved += new.size;
        }
        if old.free == new.free {
            return;
        }
        if new.free > 0 {
            self.free_sizes.push((new.free, id));
        }
        if self.free_sizes.len() > 2 * self.counts.len() + 64 {
            let free = self.counts.iter().zip(0..).filter(|(share, _)| share.free > 0);
            self.free_sizes = free.map(|(share, id)| (share.free, id)).collect();
        }
        while let Some(&(size, id)) = self.free_sizes.peek()
            && self.counts[id as usize].free != size
        {
            self.free_sizes.pop();
        }
    }
}

impl Tiling {
    /// Free memory by kind; `None` unless it is kept ([`Keep::Kinds`]).
    pub fn free_kinds(&self) -> Option<FreeKinds> {
        let kinds = self.free_kinds.as_ref()?;
        Some(FreeKinds {
            releasable: kinds.releasable,
            stranded: self.totals.reserved - self.totals.active - kinds.releasable,
            private_free: kinds.private_free,
            private_reserved: kinds.private_reserved,
            largest: kinds.free_sizes.peek().map_or(0, |(size, _)| *size),
        })
    }

    /// Counts tile `id`, if there is one, by kind, after it changed or got another neighbour.
    #[inline]
    pub(super) fn recount(&mut self, id: u32) {
        if let Some(kinds) = &mut self.free_kinds
            && let Some(tile) = self.tiles.get(id as usize)
        {
            let stream_pool = &self.stream_pools[tile.stream_pool as usize];
            kinds.count_tile(id, tile, stream_pool.is_small, stream_pool.pool);
        }
    }

    /// The same for a new tile and its neighbours.
    #[inline]
    pub(super) fn recount_added(&mut self, id: u32) {
        if let Some(kinds) = &mut self.free_kinds {
            let tile = self.tiles[id as usize];
            let stream_pool = &self.stream_pools[tile.stream_pool as usize];
            kinds.set_phase(id, &tile, stream_pool.is_small);
            for id in [id, tile.prev, tile.next] {
                self.recount(id);
            }
        }
    }

    /// The same when tile `id` is gone.
    #[inline]
    pub(super) fn recount_removed(&mut self, id: u32, tile: &Tile) {
        if let Some(kinds) = &mut self.free_kinds {
            kinds.replace_counts(id, TileCounts::default());
            for id in [tile.prev, tile.next] {
                self.recount(id);
            }
        }
    }
}
