//! What a moment of the literal replay is told in.

use crate::base::ids::PoolId;

/// Sums over all tiles, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Held from the device.
    pub reserved: u64,
    /// In blocks that the program holds.
    pub allocated: u64,
    /// Allocated, or freed and waiting for another stream.
    pub active: u64,
    /// Bytes asked for, of the active blocks.
    pub requested: u64,
}

/// The part of a pool that serves one stream: where a block may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPool {
    /// The pool.
    pub pool: PoolId,
    /// The stream's raw handle.
    pub stream: u64,
    /// Whether it is the half of the pool for requests up to 1 MiB.
    pub is_small: bool,
    /// Bytes free there now.
    pub free: u64,
    /// Bytes freed there that wait for another stream.
    pub pending: u64,
}
