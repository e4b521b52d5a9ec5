//! Free memory by kind, kept current as tiles change.
//!
//! `empty_cache()` releases whole free segments of the default pool, and whole free granules of expandable ones: the
//! rule that the figures at a snapshot use. The counts of each tile are kept, so that an entry costs a few additions,
//! however many tiles there are.

use std::collections::BinaryHeap;

use super::tile::{NONE, Tile};
use crate::allocator::conf::Settings;
use crate::allocator::{granule_size, whole_granule_bytes};
use crate::base::ids::PoolId;
use crate::snapshot::BlockState;

/// The figures that a literal replay tracks. All but the totals costs time at every entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracking {
    Totals,
    /// Totals and [`super::Tiling::free_kinds`].
    FreeKinds,
    /// Totals and the changes of each entry: see `Tiling::changes`.
    Changes,
}

/// Free memory of a device by kind, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeKinds {
    /// Bytes that `empty_cache()` would release to the device.
    pub releasable: u64,
    /// Free bytes that it would not release.
    pub stranded: u64,
    /// The part of `stranded` that is in private pools.
    pub private_free: u64,
    /// Bytes of private pools, in use or free.
    pub private_reserved: u64,
    /// The largest free block of any pool and stream.
    pub largest: u64,
}

/// The counts of one tile, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct TileCounts {
    /// For expandable memory: the address of a granule modulo the size of granules.
    granule_phase: u64,
    size: u64,
    free: u64,
    releasable: u64,
    is_private: bool,
}

/// The sums over all tiles.
#[derive(Debug, Default)]
pub(super) struct FreeKindSums {
    /// Size of a granule of large and of small pools.
    granules: [u64; 2],
    /// By tile id.
    counts: Vec<TileCounts>,
    releasable: u64,
    private_free: u64,
    private_reserved: u64,
    /// (size, tile id) of free tiles. Outdated pairs remain until they reach the top.
    free_sizes: BinaryHeap<(u64, u32)>,
}

impl FreeKindSums {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { granules: [false, true].map(|is_small| granule_size(is_small, settings)), ..Self::default() }
    }

    /// `free` is all free bytes.
    pub(super) fn free_kinds(&self, free: u64) -> FreeKinds {
        FreeKinds {
            releasable: self.releasable,
            stranded: free - self.releasable,
            private_free: self.private_free,
            private_reserved: self.private_reserved,
            largest: self.free_sizes.peek().map_or(0, |(size, _)| *size),
        }
    }

    fn granule(&self, is_small: bool) -> u64 {
        self.granules[usize::from(is_small)]
    }

    /// Sets where granules begin in the new tile `id`: as in an adjacent tile, else at its start.
    pub(super) fn set_phase(&mut self, id: u32, tile: &Tile, is_small: bool) {
        let adjacent = [tile.prev, tile.next].into_iter().find_map(|id| self.counts.get(id as usize));
        let phase = adjacent.map_or(tile.addr % self.granule(is_small), |counts| counts.granule_phase);
        let id = id as usize;
        if self.counts.len() <= id {
            self.counts.resize(id + 1, TileCounts::default());
        }
        self.counts[id].granule_phase = phase;
    }

    pub(super) fn count_tile(&mut self, id: u32, tile: &Tile, is_small: bool, pool: PoolId) {
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

    pub(super) fn remove_tile(&mut self, id: u32) {
        self.replace_counts(id, TileCounts::default());
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
            let free = self.counts.iter().zip(0..).filter(|(counts, _)| counts.free > 0);
            self.free_sizes = free.map(|(counts, id)| (counts.free, id)).collect();
        }
        while let Some(&(size, id)) = self.free_sizes.peek()
            && self.counts[id as usize].free != size
        {
            self.free_sizes.pop();
        }
    }
}
