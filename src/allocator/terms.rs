//! PyTorch's words for what its allocator does and for the state of a block, as traces and segments
//! write them.

/// What a trace entry records (`TraceEntry::Action` in c10/cuda/CUDACachingAllocator.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A block was handed out; `size` is what was asked for.
    Alloc,
    /// The program freed a block; other streams may still use it.
    FreeRequested,
    /// The block went back to the pool.
    FreeCompleted,
    /// `cudaMalloc` of a segment.
    SegmentAlloc,
    /// `cudaFree` of a segment.
    SegmentFree,
    /// Physical memory mapped into an expandable segment.
    SegmentMap,
    /// Physical memory taken out of an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed; `addr` holds the device's free bytes, `size` the rounded request.
    Oom,
    /// Anything else: annotations, and actions of releases to come.
    Other,
}

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockState {
    /// Held by the program.
    ActiveAllocated,
    /// Freed by the program, waiting for work on another stream. `active_awaiting_free` in docstrings.
    ActivePendingFree,
    /// Free, cached by the allocator.
    Inactive,
}

impl Action {
    /// The trace's word for it.
    pub fn word(self) -> &'static str {
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

    /// Whether memory was taken from the device.
    #[inline]
    pub fn is_growth(self) -> bool {
        matches!(self, Self::SegmentAlloc | Self::SegmentMap)
    }

    /// Whether memory was given back to the device.
    #[inline]
    pub fn is_shrinking(self) -> bool {
        matches!(self, Self::SegmentFree | Self::SegmentUnmap)
    }

    /// Whether memory was taken from the device or given back.
    #[inline]
    pub fn moves_memory(self) -> bool {
        self.is_growth() || self.is_shrinking()
    }
}
