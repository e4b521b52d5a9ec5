//! Segments and blocks at the time of the snapshot.

use std::ops::Range;

use crate::allocator::trace_action::BlockState;
use crate::allocator::{BlockView, DeviceRange};
use crate::base::ids::{PoolId, StackId};

/// One `cudaMalloc`, or one run of mapped memory in an expandable segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// Device index.
    pub device: u64,
    /// First address.
    pub address: u64,
    /// Bytes, of allocated and free blocks together.
    pub total_size: u64,
    /// Raw handle of its stream.
    pub stream: u64,
    /// Whether it is in a small pool (requests up to 1 MiB).
    pub is_small: bool,
    /// Whether memory is mapped into it as needed (`expandable_segments:True`).
    pub is_expandable: bool,
    /// The default pool if the release does not record pools.
    pub pool: PoolId,
    /// Where it was allocated, if recorded.
    pub stack: StackId,
    /// Its rows in [`Blocks`], in address order.
    pub blocks: Range<usize>,
}

impl Segment {
    /// Its blocks among `all`, the blocks of the same snapshot.
    pub fn blocks_in<'b>(&self, all: &'b [Block]) -> &'b [Block] {
        let blocks = all.get(self.blocks.clone());
        debug_assert!(blocks.is_some(), "the blocks must be those of the segment's snapshot");
        blocks.unwrap_or_default()
    }
}

impl From<&Segment> for DeviceRange {
    fn from(segment: &Segment) -> Self {
        let Segment { address: addr, total_size: size, stream, pool, is_small, is_expandable, .. } = *segment;
        Self { addr, size, stream, pool, is_small, is_expandable }
    }
}

/// A piece of a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Rounded bytes.
    pub size: u64,
    /// Requested bytes: stale in inactive blocks, equal to `size` if not recorded (before 2.0).
    pub requested_size: u64,
    /// State at the time of the snapshot.
    pub state: BlockState,
    /// Where it was allocated, if recorded.
    pub stack: StackId,
    /// `stack` with its context, if there is any: see [`super::Stacks::extended`].
    pub extended_stack: StackId,
}

/// With its context as its stack.
impl From<&Block> for BlockView {
    fn from(block: &Block) -> Self {
        let Block { address: addr, size, requested_size: requested, state, extended_stack: context, .. } = *block;
        Self { addr, size, requested, state, context }
    }
}

/// All segments of a snapshot.
pub type Segments = Vec<Segment>;
/// All blocks of a snapshot; those of one segment are consecutive.
pub type Blocks = Vec<Block>;
