//! A tile: a block of any state, with links to its neighbours.

use crate::base::ids::StackId;
use crate::snapshot::BlockState;

/// No neighbour: the tile is the first or the last of its segment.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) requested: u64,
    pub(crate) prev: u32,
    pub(super) next: u32,
    pub(crate) stream_pool: u32,
    pub(crate) state: BlockState,
    pub(crate) is_expandable: bool,
    pub(crate) stack: StackId,
}

impl Tile {
    pub(super) fn end(&self) -> u64 {
        self.addr.saturating_add(self.size)
    }

    /// Whether adjacent memory that `stream_pool` maps is linked with it.
    pub(super) fn joins(&self, stream_pool: u32) -> bool {
        self.is_expandable && self.stream_pool == stream_pool
    }
}
