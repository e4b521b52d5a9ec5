//! Keeps the sum of releasable memory while tiles change.

use super::state::Tiling;
use super::tile::Tile;

impl Tiling {
    /// Free bytes that `empty_cache()` would not release, if that is tracked ([`super::Tracking::Stranded`]).
    pub fn stranded_bytes(&self) -> Option<u64> {
        Some(self.totals.reserved - self.totals.active - self.releasable.as_ref()?.releasable)
    }

    /// Counts tile `id` again, if it exists, after it changed or got another neighbour.
    #[inline]
    pub(super) fn recount(&mut self, id: u32) {
        if let Some(sum) = &mut self.releasable
            && let Some(tile) = self.tiles.get(id as usize)
        {
            let stream_pool = &self.stream_pools[tile.stream_pool as usize];
            sum.count_tile(id, tile, stream_pool.is_small, stream_pool.pool);
        }
    }

    /// Counts a new tile and its neighbours.
    #[inline]
    pub(super) fn recount_added(&mut self, id: u32) {
        if let Some(sum) = &mut self.releasable {
            let tile = self.tiles[id as usize];
            let stream_pool = &self.stream_pools[tile.stream_pool as usize];
            sum.set_phase(id, &tile, stream_pool.is_small);
            for id in [id, tile.prev, tile.next] {
                self.recount(id);
            }
        }
    }

    /// Removes tile `id` from the sums, and counts its neighbours.
    #[inline]
    pub(super) fn recount_removed(&mut self, id: u32, tile: &Tile) {
        if let Some(sum) = &mut self.releasable {
            sum.remove_tile(id);
            for id in [tile.prev, tile.next] {
                self.recount(id);
            }
        }
    }
}
