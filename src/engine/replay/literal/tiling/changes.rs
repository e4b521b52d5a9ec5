//! The changes of each entry, to follow every block from its allocation to its free.

use super::state::{Change, Tiling};
use super::tile::Tile;
use crate::snapshot::BlockState;

impl Tiling {
    /// The changes of the last entry, in order; empty unless tracked ([`super::Tracking::Changes`]). A block may occur
    /// several times.
    pub(crate) fn changes(&self) -> &[Change] {
        self.changes.as_deref().unwrap_or_default() // not tracked
    }

    /// The tile that starts at `addr`.
    pub(crate) fn tile_at(&self, addr: u64) -> Option<&Tile> {
        self.tile(self.find(addr)?)
    }

    #[inline]
    pub(crate) fn clear_changes(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.clear();
        }
    }

    #[inline]
    pub(super) fn record_change(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    #[inline]
    pub(super) fn record_tile_change(&mut self, tile: &Tile) {
        if tile.state != BlockState::Inactive {
            self.record_change(Change::Block(tile.addr));
        }
    }
}
