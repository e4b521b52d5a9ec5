//! What an entry changed, for whoever follows every block from its beginning to its end.

use super::state::{Change, Tile, Tiling};
use crate::snapshot::BlockState;

impl Tiling {
    /// What the last entry changed, in its order; nothing unless it is kept ([`super::Keep::Changes`]). A block may be
    /// named several times.
    pub(crate) fn changes(&self) -> &[Change] {
        self.changes.as_deref().unwrap_or_default()
    }

    /// The tile that begins at `addr`.
    pub(crate) fn tile_at(&self, addr: u64) -> Option<&Tile> {
        self.tile(self.find(addr)?)
    }

    /// The next entry begins.
    #[inline]
    pub(crate) fn clear_changes(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.clear();
        }
    }

    /// Takes note of a change.
    #[inline]
    pub(super) fn record_change(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    /// Takes note of a tile that is about to change, or has changed.
    #[inline]
    pub(super) fn record_tile_change(&mut self, tile: &Tile) {
        if tile.state != BlockState::Inactive {
            self.record_change(Change::Block(tile.addr));
        }
    }
}
