//! The allocator's memory as a snapshot shows it.

use std::ops::Range;

use super::block::{BlockId, PoolBlock, State};
use super::caching::CachingAllocator;
use crate::allocator::terms::BlockState;
use crate::base::ids::{PoolId, StackId};

/// A segment: one `cudaMalloc`, or one mapped run of an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// Where it begins.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The stream it serves.
    pub stream: u64,
    /// Its pool.
    pub pool: PoolId,
    /// Whether it is in the pool's half for requests up to 1 MiB.
    pub is_small: bool,
    /// Whether memory was mapped into it.
    pub is_expandable: bool,
    /// Where it was allocated, if still known.
    pub context: StackId,
    /// Its rows in the blocks, in address order.
    pub blocks: Range<usize>,
}

/// A block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Where it begins.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes asked for; in a free block, whatever the object last held.
    pub requested: u64,
    /// What it is used for.
    pub state: BlockState,
    /// Where it was allocated; nothing in a free block.
    pub context: StackId,
}

impl CachingAllocator {
    /// Every segment and its blocks, in address order.
    pub fn view(&self) -> (Vec<SegmentView>, Vec<BlockView>) {
        let mut ids: Vec<BlockId> =
            self.blocks.ids().filter(|id| self.blocks[*id].state != State::Unmapped).collect();
        ids.sort_unstable_by_key(|id| (self.blocks[*id].addr, *id));
        let mut segments: Vec<SegmentView> = Vec::new();
        let mut views: Vec<BlockView> = Vec::with_capacity(ids.len());
        for id in ids {
            let block = &self.blocks[id];
            let starts = match block.prev.some() {
                None => true,
                Some(prev) => self.blocks[prev].state == State::Unmapped,
            };
            views.push(view_of(block));
            match segments.last_mut() {
                Some(segment) if !starts => {
                    segment.size = segment.size.saturating_add(block.size);
                    segment.blocks.end = views.len();
                }
                _ => {
                    let free_list = &self.pools.free_lists[block.free_list as usize];
                    segments.push(SegmentView {
                        addr: block.addr,
                        size: block.size,
                        stream: free_list.stream,
                        pool: free_list.pool,
                        is_small: free_list.is_small,
                        is_expandable: block.is_expandable(),
                        context: block.segment_context,
                        blocks: views.len() - 1..views.len(),
                    });
                }
            }
        }
        (segments, views)
    }
}

fn view_of(block: &PoolBlock) -> BlockView {
    let state = match block.state {
        State::Allocated => BlockState::ActiveAllocated,
        State::Pending => BlockState::ActivePendingFree,
        State::Free | State::Unmapped | State::Vacant => BlockState::Inactive,
    };
    let context = if state == BlockState::Inactive { StackId::default() } else { block.context };
    BlockView { addr: block.addr, size: block.size, requested: block.requested, state, context }
}
