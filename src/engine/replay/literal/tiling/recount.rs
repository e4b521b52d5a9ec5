//! Keeps the sums of free memory by kind while tiles change.

use super::free::FreeKinds;
use super::state::Tiling;
use super::tile::Tile;

impl Tiling {
    /// Free memory by kind, if that is tracked ([`super::Tracking::FreeKinds`]).
    pub fn free_kinds(&self) -> Option<FreeKinds> {
        let free = self.totals.reserved - self.totals.active;
        Some(self.free_kinds.as_ref()?.free_kinds(free))
    }

    /// Counts tile `id` again, if it exists, after it changed or got another neighbour.
    #[inline]
    pub(super) fn recount(&mut self, id: u32) {
        if let Some(kinds) = &mut self.free_kinds
            && let Some(tile) = self.tiles.get(id as usize)
        {
            let stream_pool = &self.stream_pools[tile.stream_pool as usize];
            kinds.count_tile(id, tile, stream_pool.is_small, stream_pool.pool);
        }
    }

    /// Counts a new tile and its neighbours.
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

    /// Removes tile `id` from the sums, and counts its neighbours.
    #[inline]
    pub(super) fn recount_removed(&mut self, id: u32, tile: &Tile) {
        if let Some(kinds) = &mut self.free_kinds {
            kinds.remove_tile(id);
            for id in [tile.prev, tile.next] {
                self.recount(id);
            }
        }
    }
}
