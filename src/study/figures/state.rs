//! A device's memory at one moment in plain quantities, and what follows from them.

use crate::base::units::ratio;

/// A device's memory at one moment: at the snapshot, or after an entry of its trace. Bytes, unless it
/// says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Held from the device.
    pub reserved: u64,
    /// In blocks that the program holds.
    pub allocated: u64,
    /// In blocks that the program freed and that wait for another stream.
    pub pending: u64,
    /// In free blocks.
    pub free: u64,
    /// Asked for, of the allocated and pending blocks.
    pub requested: u64,
    /// What those blocks are larger than was asked for.
    pub rounding: u64,
    /// The largest free block of any pool and stream.
    pub largest_free_block: u64,
    /// Free, and `empty_cache()` would give it back to the device: whole free segments and whole granules
    /// of expandable ones, of the default pool. Private pools keep theirs while in use.
    pub releasable: u64,
    /// Free in blocks that have a neighbour in their segment; not of expandable segments.
    pub inactive_split: u64,
    /// Held from the device by private pools (CUDA graphs, `MemPool`).
    pub private_reserved: u64,
    /// The free part of that.
    pub private_free: u64,
    /// Segments, by kind.
    pub segments: SegmentCounts,
    /// How many blocks the program holds.
    pub allocated_blocks: u64,
    /// How many blocks wait for another stream.
    pub pending_blocks: u64,
    /// How many blocks are free.
    pub free_blocks: u64,
}

/// Segments by kind: small and large pools share all of them out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// All of them.
    pub all: u64,
    /// How many are of small pools, and their bytes.
    pub small: [u64; 2],
    /// How many are of large pools, and their bytes.
    pub large: [u64; 2],
    /// How many are mapped runs of expandable segments, small or large, and their bytes.
    pub expandable: [u64; 2],
}

impl MemoryState {
    /// Allocated or pending.
    pub fn active(&self) -> u64 {
        self.allocated.saturating_add(self.pending)
    }

    /// Free, and `empty_cache()` would not give it back: beside live blocks, or in a private pool.
    pub fn stranded(&self) -> u64 {
        self.free.saturating_sub(self.releasable)
    }

    /// 1 - allocated / reserved.
    pub fn gap_ratio(&self) -> f64 {
        rest(self.allocated, self.reserved)
    }

    /// Inactive split, of reserved.
    pub fn inactive_split_ratio(&self) -> f64 {
        ratio(self.inactive_split, self.reserved)
    }

    /// Stranded, of reserved.
    pub fn stranded_ratio(&self) -> f64 {
        ratio(self.stranded(), self.reserved)
    }

    /// 1 - largest free block / free.
    pub fn external_ratio(&self) -> f64 {
        rest(self.largest_free_block, self.free)
    }

    /// Rounding, of active.
    pub fn rounding_ratio(&self) -> f64 {
        ratio(self.rounding, self.active())
    }
}

/// What `part` leaves of `whole`, as a part of it; 0 when there is no whole.
fn rest(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 1.0 - ratio(part, whole) }
}
