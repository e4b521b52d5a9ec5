//! Adjacent blocks, for figures of fragmentation.

use super::state::Tiling;
use super::tile::{NONE, Tile};
use crate::allocator::granule_size;
use crate::base::ids::{PoolId, StackId};
use crate::snapshot::BlockState;

/// A block of a `Stretch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeBlock {
    /// Bytes from the start of the range.
    pub offset: u64,
    pub size: u64,
    pub state: BlockState,
    /// The stack that allocated it.
    pub stack: StackId,
}

impl RangeBlock {
    /// Bytes from the start of the range to the end of the block.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// A segment, or memory mapped into an expandable segment without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContiguousRange {
    /// In address order, without gaps.
    pub blocks: Vec<RangeBlock>,
    /// The unit in which the range can be released, in bytes: all of it, unless it is expandable.
    pub granule: u64,
    pub is_private: bool,
}

impl Tiling {
    /// All memory taken from the device, in no order.
    pub fn contiguous_ranges(&self) -> impl Iterator<Item = ContiguousRange> + '_ {
        self.tiles().filter(|tile| tile.prev == NONE).map(|first| self.contiguous_range(first))
    }

    fn contiguous_range(&self, first: &Tile) -> ContiguousRange {
        let stream_pool = &self.stream_pools[first.stream_pool as usize];
        let tiles = std::iter::successors(Some(first), |tile| self.tile(tile.next));
        let blocks: Vec<RangeBlock> = tiles
            .map(|&Tile { addr, size, state, stack, .. }| RangeBlock { offset: addr - first.addr, size, state, stack })
            .collect();
        let size = blocks.last().map_or(0, RangeBlock::end).max(1);
        ContiguousRange {
            granule: if first.is_expandable { granule_size(stream_pool.is_small, &self.settings) } else { size },
            blocks,
            is_private: stream_pool.pool != PoolId::default(),
        }
    }
}
