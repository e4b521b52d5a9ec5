//! Sums over the blocks of the literal replay.

use crate::base::ids::PoolId;

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Taken from the device.
    pub reserved: u64,
    /// In allocated blocks.
    pub allocated: u64,
    /// In allocated blocks, and in pending ones: freed while another stream still used them.
    pub active: u64,
    /// Requested by the program, of the active blocks.
    pub requested: u64,
}

/// A pool's free list for one stream and size class: only its blocks can serve a request there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPool {
    pub pool: PoolId,
    /// Raw handle.
    pub stream: u64,
    /// The small pool serves requests up to 1 MiB.
    pub is_small: bool,
    /// Bytes in free blocks.
    pub free: u64,
    /// Bytes in pending blocks.
    pub pending: u64,
}
