//! Splitting tiles and merging free ones. Neither changes the totals.

use super::state::{Contradiction, Tiling};
use super::tile::Tile;
use crate::snapshot::BlockState;

impl Tiling {
    /// Splits tile `id` at `addr`, which must lie inside; both parts keep its state.
    pub(super) fn split(&mut self, id: u32, addr: u64) -> u32 {
        let tile = self.tiles[id as usize];
        debug_assert!(tile.addr < addr && addr < tile.end(), "both parts have a size");
        self.record_tile_change(&tile);
        self.tiles[id as usize].size = addr - tile.addr;
        self.recount(id);
        let rest = Tile { addr, size: tile.end() - addr, prev: id, requested: 0, ..tile };
        self.record_tile_change(&rest);
        self.link(rest)
    }

    /// Splits the free tile that contains the `size` bytes at `addr`, so that they are a tile.
    pub(super) fn split_out(&mut self, addr: u64, size: u64) -> Result<u32, Contradiction> {
        let end = addr.checked_add(size).ok_or(Contradiction)?;
        let id = self.tile_containing(addr).ok_or(Contradiction)?;
        let tile = self.tiles[id as usize];
        if tile.state != BlockState::Inactive || tile.end() < end || size == 0 {
            return Err(Contradiction);
        }
        let id = if tile.addr < addr { self.split(id, addr) } else { id };
        if end < tile.end() {
            self.split(id, end);
        }
        Ok(id)
    }

    /// Merges free tile `id` with free neighbours.
    pub(super) fn merge(&mut self, id: u32) {
        let tile = self.tiles[id as usize];
        if let Some(&next) = self.tile(tile.next)
            && next.state == BlockState::Inactive
        {
            self.unlink(tile.next, true);
            self.tiles[id as usize].size += next.size;
            self.recount(id);
        }
        if let Some(&prev) = self.tile(tile.prev)
            && prev.state == BlockState::Inactive
        {
            let tile = self.tiles[id as usize];
            self.unlink(id, true);
            self.tiles[tile.prev as usize].size += tile.size;
            self.recount(tile.prev);
        }
    }
}
