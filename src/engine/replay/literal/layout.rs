//! Segments and blocks at some entry of the literal replay, in the form that a snapshot has.

use super::tiling::{NONE, Tile, Tiling};
use super::totals::StreamPool;
use crate::snapshot::{Block, Blocks, Segment, Segments, Stacks};

/// The part of a snapshot taken at that entry that belongs to one device. The stacks of segments are unknown.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// In address order.
    pub segments: Segments,
    /// The blocks of all segments.
    pub blocks: Blocks,
}

impl Layout {
    pub fn from_tiling(tiling: &Tiling, device: u64) -> Self {
        let mut tiles: Vec<&Tile> = tiling.tiles().collect();
        tiles.sort_unstable_by_key(|tile| tile.addr);
        let mut layout = Self::default();
        for tile in tiles {
            let index = layout.blocks.len();
            let Tile { addr: address, size, requested: requested_size, state, stack, is_expandable, .. } = *tile;
            layout.blocks.push(Block { address, size, requested_size, state, stack, extended_stack: stack });
            if tile.prev != NONE
                && let Some(segment) = layout.segments.last_mut()
            {
                segment.total_size = segment.total_size.saturating_add(tile.size);
                segment.blocks.end = index + 1;
            } else if let Some(stream_pool) = tiling.stream_pools().get(tile.stream_pool as usize) {
                let StreamPool { pool, stream, is_small, .. } = *stream_pool;
                let (stack, blocks) = (Stacks::EMPTY, index..index + 1);
                let segment =
                    Segment { device, address, total_size: size, stream, is_small, is_expandable, pool, stack, blocks };
                layout.segments.push(segment);
            }
        }
        layout
    }
}
