//! PyTorch's names for actions in a trace and for states of a block.

/// `TraceEntry::Action` in c10/cuda/CUDACachingAllocator.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Action {
    /// A block was allocated; the entry's `size` is the request.
    Alloc,
    /// The program freed a block. Other streams may still use it.
    FreeRequested,
    /// The block went back to the pool.
    FreeCompleted,
    /// `cudaMalloc` of a segment.
    SegmentAlloc,
    /// `cudaFree` of a segment.
    SegmentFree,
    /// Memory was mapped into an expandable segment.
    SegmentMap,
    /// Memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed; `addr` is the device's free bytes, `size` the rounded request.
    Oom,
    /// Anything else: annotations, and actions of future releases.
    #[default]
    Other,
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
    /// The name in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::FreeRequested => "free_requested",
            Self::FreeCompleted => "free_completed",
            Self::SegmentAlloc => "segment_alloc",
            Self::SegmentFree => "segment_free",
            Self::SegmentMap => "segment_map",
            Self::SegmentUnmap => "segment_unmap",
            Self::Snapshot => "snapshot",
            Self::Oom => "oom",
            Self::Other => "annotation",
        }
    }

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
