//! Segments and blocks at some entry of the literal replay, in the form that a snapshot has.

use super::tiling::{NONE, Tile, Tiling};
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
            layout.blocks.push(Block {
                address: tile.addr,
                size: tile.size,
                requested_size: tile.requested,
                state: tile.state,
                stack: tile.stack,
                extended_stack: tile.stack,
            });
            if tile.prev != NONE
                && let Some(segment) = layout.segments.last_mut()
            {
                segment.total_size = segment.total_size.saturating_add(tile.size);
                segment.blocks.end = index + 1;
            } else if let Some(stream_pool) = tiling.stream_pools().get(tile.stream_pool as usize) {
                layout.segments.push(Segment {
                    device,
                    address: tile.addr,
                    total_size: tile.size,
                    stream: stream_pool.stream,
                    is_small: stream_pool.is_small,
                    is_expandable: tile.is_expandable,
                    pool: stream_pool.pool,
                    stack: Stacks::EMPTY,
                    blocks: index..index + 1,
                });
            }
        }
        layout
    }
}
