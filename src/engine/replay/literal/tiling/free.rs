//! The free memory that `empty_cache()` would release, kept current as tiles change.
//!
//! `empty_cache()` releases whole free segments of the default pool, and whole free granules of expandable ones: the
//! rule that the figures at a snapshot use. The counts of each tile are kept, so that an entry costs a few additions,
//! however many tiles there are.

use super::tile::{NONE, Tile};
use crate::allocator::conf::Settings;
use crate::allocator::{granule_size, whole_granule_bytes};
use crate::base::ids::PoolId;
use crate::snapshot::BlockState;

/// The figures that a literal replay tracks. All but the totals costs time at every entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracking {
    Totals,
    /// Totals and [`super::Tiling::stranded_bytes`].
    Stranded,
    /// Totals and the changes of each entry: see `Tiling::changes`.
    Changes,
}

/// The counts of one tile, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct TileCounts {
    /// For expandable memory: the address of a granule modulo the size of granules.
    granule_phase: u64,
    releasable: u64,
}

/// The sum over all tiles.
#[derive(Debug)]
pub(super) struct ReleasableSum {
    /// Size of a granule of large and of small pools.
    granules: [u64; 2],
    /// By tile id.
    counts: Vec<TileCounts>,
    pub(super) releasable: u64,
}

impl ReleasableSum {
    pub(super) fn new(settings: &Settings) -> Self {
        let granules = [false, true].map(|is_small| granule_size(is_small, settings));
        Self { granules, counts: Vec::new(), releasable: 0 }
    }

    fn counts_of(&self, id: u32) -> Option<&TileCounts> {
        self.counts.get(id as usize)
    }

    fn granule(&self, is_small: bool) -> u64 {
        self.granules[usize::from(is_small)]
    }

    /// Sets where granules begin in the new tile `id`: as in an adjacent tile, else at its start.
    pub(super) fn set_phase(&mut self, id: u32, tile: &Tile, is_small: bool) {
        let adjacent = [tile.prev, tile.next].into_iter().find_map(|id| self.counts_of(id));
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
        let releasable = if pool != PoolId::default() || free == 0 {
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
        self.replace_counts(id, TileCounts { granule_phase: phase, releasable });
    }

    pub(super) fn remove_tile(&mut self, id: u32) {
        self.replace_counts(id, TileCounts::default());
    }

    fn replace_counts(&mut self, id: u32, new: TileCounts) {
        let old = std::mem::replace(&mut self.counts[id as usize], new);
        self.releasable = self.releasable - old.releasable + new.releasable;
    }
}
