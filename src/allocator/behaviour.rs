//! What differs between releases of PyTorch in the allocator's decisions, as a value.

use crate::allocator::releases::{Rule, follows};

/// When the pools that a program lends for emergencies are searched (`MemPool(use_on_oom=True)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseOnOom {
    /// Never: there are no such pools.
    Never,
    /// When everything else has failed.
    Last,
    /// Before cached memory is given back to the device.
    BeforeReclaiming,
}

/// Which of several free blocks of one size is taken (pytorch/pytorch#167662).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TieBreak {
    /// The one with the lowest address.
    LowestAddress,
    /// The one whose object was made first, be it as a segment or cut off another block.
    OldestBlock,
    /// The one in the oldest segment, and there the one with the lowest address.
    OldestSegment,
}

/// The rules of one release.
#[expect(clippy::struct_excessive_bools, reason = "independent changes of PyTorch's")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour {
    /// See [`TieBreak`].
    pub tie_break: TieBreak,
    /// Expandable segments serve private pools too; before, only their rule for splitting applied there
    /// (pytorch/pytorch#128068).
    pub expandable_private_pools: bool,
    /// Pools over an allocator of the program's own follow the rules of whole segments, whatever the
    /// settings; before, the rule for splitting was the settings' alone.
    pub custom_pools_stay_whole: bool,
    /// Expandable blocks are passed over where whole segments are given back for a request.
    pub reclaim_skips_expandable: bool,
    /// A reservation smaller than the request is given back instead of used.
    pub reservation_must_fit: bool,
    /// Unmapping counts as one device allocation less of a private pool.
    pub unmap_counts_for_pool: bool,
    /// Any request for a private pool, in `use_mem_pool` too, waits for nothing and has nothing given back by
    /// other pools, as in a graph capture. Since 2.13 only one in a capture.
    pub private_pools_as_captures: bool,
    /// See [`UseOnOom`].
    pub use_on_oom: UseOnOom,
    /// Requests above the fraction can be refused before the device is asked
    /// (`throw_on_cudamalloc_oom`).
    pub can_reject: bool,
}

impl Behaviour {
    /// The rules of minor release `minor` of PyTorch 2, such as 9 for 2.9.1.
    pub fn of(minor: u32) -> Self {
        let has = |rule| follows(minor, rule);
        Self {
            tie_break: match (has(Rule::OldestSegment), has(Rule::OldestBlock)) {
                (true, _) => TieBreak::OldestSegment,
                (false, true) => TieBreak::OldestBlock,
                (false, false) => TieBreak::LowestAddress,
            },
            expandable_private_pools: has(Rule::ExpandablePrivatePools),
            custom_pools_stay_whole: has(Rule::CustomPoolsStayWhole),
            reclaim_skips_expandable: has(Rule::ReclaimSkipsExpandable),
            reservation_must_fit: has(Rule::ReservationMustFit),
            unmap_counts_for_pool: has(Rule::UnmapCountsForPool),
            private_pools_as_captures: !has(Rule::OnlyCapturesHoldUp),
            use_on_oom: match (has(Rule::LentPoolsBeforeReclaiming), has(Rule::LentPools)) {
                (true, _) => UseOnOom::BeforeReclaiming,
                (false, true) => UseOnOom::Last,
                (false, false) => UseOnOom::Never,
            },
            can_reject: has(Rule::ThrowOnOom),
        }
    }
}
