//! The allocator's segments and blocks, as a snapshot lists them.

use std::ops::Range;

use super::block::{BlockId, PoolBlock, PoolBlockState};
use super::caching::CachingAllocator;
use crate::allocator::trace_action::BlockState;
use crate::base::ids::{PoolId, StackId};

/// A range of device memory: one `cudaMalloc`, or one run of mapped memory in an expandable segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRange {
    /// First address.
    pub addr: u64,
    /// Bytes reserved, a multiple of the size that the device allocates or maps at once.
    pub size: u64,
    /// Raw handle of the only stream whose requests it serves.
    pub stream: u64,
    /// Private pool, or the default pool.
    pub pool: PoolId,
    /// Whether it belongs to the small pool (requests up to 1 MiB).
    pub is_small: bool,
    /// Whether memory is mapped into it as needed (`expandable_segments:True`).
    pub is_expandable: bool,
}

/// A segment with its blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// Its memory.
    pub range: DeviceRange,
    /// Where it was allocated, if known.
    pub context: StackId,
    /// Its blocks, in address order.
    pub blocks: Range<usize>,
}

/// A block: a part of a segment that is allocated, pending or free as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// First address.
    pub addr: u64,
    /// Rounded bytes.
    pub size: u64,
    /// Requested bytes; in a free block, those of the last request it served.
    pub requested: u64,
    /// A block that waits for another stream is pending, not free.
    pub state: BlockState,
    /// Where it was allocated; the default stack in a free block.
    pub context: StackId,
}

impl CachingAllocator {
    /// Every segment and its blocks, in address order.
    pub fn view(&self) -> (Vec<SegmentView>, Vec<BlockView>) {
        let mut ids: Vec<BlockId> =
            self.blocks.ids().filter(|id| self.blocks[*id].state != PoolBlockState::Unmapped).collect();
        ids.sort_unstable_by_key(|id| (self.blocks[*id].addr, *id));
        let mut segments: Vec<SegmentView> = Vec::new();
        let mut views: Vec<BlockView> = Vec::with_capacity(ids.len());
        for id in ids {
            let block = &self.blocks[id];
            let prev = block.prev.as_option();
            let starts_segment = prev.is_none_or(|prev| self.blocks[prev].state == PoolBlockState::Unmapped);
            views.push(block_view(block));
            match segments.last_mut() {
                Some(segment) if !starts_segment => {
                    segment.range.size = segment.range.size.saturating_add(block.size);
                    segment.blocks.end = views.len();
                }
                _ => {
                    let free_list = &self.pools.free_lists[block.free_list as usize];
                    segments.push(SegmentView {
                        range: DeviceRange {
                            addr: block.addr,
                            size: block.size,
                            stream: free_list.stream,
                            pool: free_list.pool,
                            is_small: free_list.is_small,
                            is_expandable: block.is_expandable(),
                        },
                        context: block.segment_context,
                        blocks: views.len() - 1..views.len(),
                    });
                }
            }
        }
        (segments, views)
    }
}

fn block_view(block: &PoolBlock) -> BlockView {
    let state = match block.state {
        PoolBlockState::Allocated => BlockState::ActiveAllocated,
        PoolBlockState::Pending => BlockState::ActivePendingFree,
        PoolBlockState::Free | PoolBlockState::Unmapped | PoolBlockState::Vacant => BlockState::Inactive,
    };
    let context = if state == BlockState::Inactive { StackId::default() } else { block.context };
    BlockView { addr: block.addr, size: block.size, requested: block.requested, state, context }
}
