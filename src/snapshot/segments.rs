//! Segments and their blocks, as they were when the snapshot was taken.

use std::ops::Range;

use crate::allocator::trace_action::BlockState;
use crate::base::ids::{PoolId, StackId};

/// Memory that the allocator holds from the device: one `cudaMalloc`, or one mapped run of an
/// expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Device number.
    pub device: u64,
    /// Where it begins in device memory.
    pub address: u64,
    /// Bytes.
    pub total_size: u64,
    /// The stream it serves, as the raw handle.
    pub stream: u64,
    /// Whether it is in a small pool (requests up to 1 MiB).
    pub is_small: bool,
    /// Whether it can grow and shrink (`expandable_segments`).
    pub is_expandable: bool,
    /// The pool it belongs to; the default pool where the release does not say.
    pub pool: PoolId,
    /// Where in the program it was allocated, if recorded.
    pub stack: StackId,
    /// Its rows in [`Blocks`], in address order.
    pub blocks: Range<usize>,
}

/// A piece of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Where it begins in device memory.
    pub address: u64,
    /// Bytes, after rounding.
    pub size: u64,
    /// Bytes the program asked for; stale in inactive blocks; `size` where not recorded (before 2.0).
    pub requested_size: u64,
    /// What it is used for.
    pub state: BlockState,
    /// Where in the program it was allocated, if recorded.
    pub stack: StackId,
    /// Who allocated it: the stack, and what is known beside it (see [`super::Stacks::maker`]).
    pub made_by: StackId,
}

/// All segments of a snapshot.
pub type Segments = Vec<Segment>;
/// All blocks of a snapshot, a segment's in one run of rows.
pub type Blocks = Vec<Block>;
