//! PyTorch's names for actions in a trace and for states of a block.

use crate::base::warning::words;

words! {
    /// `TraceEntry::Action` in c10/cuda/CUDACachingAllocator.h, with the name in a trace.
    #[derive(Default)]
    pub enum Action {
        /// A block was allocated; the entry's `size` is the request
        Alloc = "alloc",
        /// The program freed a block. Other streams may still use it
        FreeRequested = "free_requested",
        /// The block went back to the pool
        FreeCompleted = "free_completed",
        /// `cudaMalloc` of a segment
        SegmentAlloc = "segment_alloc",
        /// `cudaFree` of a segment
        SegmentFree = "segment_free",
        /// Memory was mapped into an expandable segment
        SegmentMap = "segment_map",
        /// Memory was unmapped from an expandable segment
        SegmentUnmap = "segment_unmap",
        /// A snapshot was taken
        Snapshot = "snapshot",
        /// A request failed; `addr` is the device's free bytes, `size` the rounded request
        Oom = "oom",
        /// Anything else: annotations, and actions of future releases
        #[default]
        Other = "annotation",
    }
}

/// Use of a block, as `state` in a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockState {
    /// In use by the program.
    ActiveAllocated,
    /// Freed by the program, waiting for work on another stream. `active_awaiting_free` in docstrings.
    ActivePendingFree,
    /// Free, cached by the allocator.
    #[default]
    Inactive,
}

impl Action {
    /// Whether it increases the reserved memory.
    #[inline]
    pub fn is_growth(self) -> bool {
        matches!(self, Self::SegmentAlloc | Self::SegmentMap)
    }

    /// Whether it decreases the reserved memory.
    #[inline]
    pub fn is_shrink(self) -> bool {
        matches!(self, Self::SegmentFree | Self::SegmentUnmap)
    }

    /// Whether it increases or decreases the reserved memory.
    #[inline]
    pub fn changes_reserved(self) -> bool {
        self.is_growth() || self.is_shrink()
    }
}
