//! A device's memory at one position in plain quantities, and the ratios derived from them.

use serde::Serialize;

use crate::base::units::ratio;

/// A device's memory at one position. Quantities are in bytes unless noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// In segments.
    pub reserved: u64,
    /// Requested bytes of the allocated and pending blocks.
    pub requested: u64,
    /// By how much those blocks exceed their requests.
    pub rounding: u64,
    /// The largest free block of any pool and stream.
    pub largest_free_block: u64,
    /// Free memory that `empty_cache()` would release: free segments and free granules of expandable segments, of the
    /// default pool. Private pools keep their memory while in use.
    pub releasable: u64,
    /// Free memory in segments that have other blocks too; expandable segments excluded.
    pub inactive_split: u64,
    /// In segments of private pools (CUDA graphs, `MemPool`).
    pub private_reserved: u64,
    /// In free blocks of private pools.
    pub private_free: u64,
    /// Number and bytes of segments.
    pub segments: SegmentTotals,
    /// Number and bytes of blocks.
    pub blocks: BlockTotals,
}

/// A number of segments or blocks with their total size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SizedCount {
    /// Their number.
    pub count: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

impl SizedCount {
    /// Counts one more, of `bytes`.
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Segments by kind. `small` and `large` add up to `count`; `expandable` overlaps with both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    /// Number of segments.
    pub count: u64,
    /// Segments of small pools.
    pub small: SizedCount,
    /// Segments of large pools.
    pub large: SizedCount,
    /// Mapped ranges of expandable segments, of small or large pools.
    pub expandable: SizedCount,
}

/// Blocks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockTotals {
    /// Live blocks.
    pub active_allocated: SizedCount,
    /// Freed blocks that another stream may still use.
    pub active_pending_free: SizedCount,
    /// Free blocks in the cache.
    pub inactive: SizedCount,
}

impl MemoryState {
    /// Allocated or pending.
    pub fn active(&self) -> u64 {
        self.blocks.active_allocated.bytes.saturating_add(self.blocks.active_pending_free.bytes)
    }

    /// Free memory that `empty_cache()` would not release: beside live blocks, or in a private pool.
    pub fn stranded(&self) -> u64 {
        self.blocks.inactive.bytes.saturating_sub(self.releasable)
    }

    /// 1 - allocated / reserved.
    pub fn gap_ratio(&self) -> f64 {
        remaining_ratio(self.blocks.active_allocated.bytes, self.reserved)
    }

    /// `inactive_split` / `reserved`.
    pub fn inactive_split_ratio(&self) -> f64 {
        ratio(self.inactive_split, self.reserved)
    }

    /// `stranded` / `reserved`.
    pub fn stranded_ratio(&self) -> f64 {
        ratio(self.stranded(), self.reserved)
    }

    /// 1 - largest free block / free.
    pub fn external_ratio(&self) -> f64 {
        remaining_ratio(self.largest_free_block, self.blocks.inactive.bytes)
    }

    /// `rounding` / `active`.
    pub fn rounding_ratio(&self) -> f64 {
        ratio(self.rounding, self.active())
    }
}

/// 1 - `part` / `total`; 0 if `total` is 0.
fn remaining_ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { 1.0 - ratio(part, total) }
}
