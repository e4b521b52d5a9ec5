//! The differences between releases of PyTorch in the allocator's decisions, as a value.

use crate::allocator::releases::{Rule, has_rule};

/// Which of several free blocks of the same size serves a request (pytorch/pytorch#167662).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TieBreak {
    /// The one with the lowest address.
    LowestAddress,
    /// The one that was created first, as a segment or by a split.
    OldestBlock,
    /// The one in the oldest segment, and in it the one with the lowest address.
    OldestSegment,
}

/// The rules of one release.
#[expect(clippy::struct_excessive_bools, reason = "independent changes of PyTorch's")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// The choice among free blocks of the same size.
    pub tie_break: TieBreak,
    /// Expandable segments serve private pools too (pytorch/pytorch#128068). In older releases only their rule for
    /// splitting applied there.
    pub expandable_private_pools: bool,
    /// Pools with a custom allocator follow the rules for plain segments, whatever the settings. In older releases
    /// the rule for splitting depended on the settings alone.
    pub custom_pools_never_expandable: bool,
    /// `release_available_cached_blocks` skips expandable blocks.
    pub reclaim_skips_expandable: bool,
    /// A reservation that is smaller than the request is released, and the request fails.
    pub reservation_must_fit: bool,
    /// Unmapping decreases a private pool's `cudaMalloc_count`.
    pub unmap_counts_for_pool: bool,
    /// Every request for a private pool, in `use_mem_pool` too, behaves as in a graph capture: it neither waits for
    /// events nor releases memory of other pools. Since 2.13 only requests in a capture do.
    pub private_pools_as_captures: bool,
    /// `throw_on_cudamalloc_oom`: a request above `per_process_memory_fraction` fails before `cudaMalloc`.
    pub has_throw_on_cudamalloc_oom: bool,
}

impl Behaviour {
    /// The rules of PyTorch 2.`minor`: 9 for 2.9.1.
    pub fn for_release(minor: u32) -> Self {
        let has = |rule| has_rule(minor, rule);
        Self {
            tie_break: match (has(Rule::OldestSegment), has(Rule::OldestBlock)) {
                (true, _) => TieBreak::OldestSegment,
                (false, true) => TieBreak::OldestBlock,
                (false, false) => TieBreak::LowestAddress,
            },
            expandable_private_pools: has(Rule::ExpandablePrivatePools),
            custom_pools_never_expandable: has(Rule::CustomPoolsNeverExpandable),
            reclaim_skips_expandable: has(Rule::ReclaimSkipsExpandable),
            reservation_must_fit: has(Rule::ReservationMustFit),
            unmap_counts_for_pool: has(Rule::UnmapCountsForPool),
            private_pools_as_captures: !has(Rule::PrivatePoolsRetry),
            has_throw_on_cudamalloc_oom: has(Rule::ThrowOnCudamallocOom),
        }
    }
}
