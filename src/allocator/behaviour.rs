//! What differs between releases of PyTorch in the allocator's decisions, as a value.

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
    /// The rules of minor release `minor` of PyTorch 2, such as 9 for 2.9.1; of the newest known
    /// release for later ones, of 2.1 for earlier ones.
    ///
    /// Each bound was settled by recordings of fifteen releases, 2.1.2 to 2.15.0.
    pub fn of(minor: u32) -> Self {
        Self {
            tie_break: match minor {
                ..=11 => TieBreak::LowestAddress,
                12 => TieBreak::OldestBlock,
                13.. => TieBreak::OldestSegment,
            },
            expandable_private_pools: minor >= 5,
            custom_pools_stay_whole: minor >= 10,
            reclaim_skips_expandable: minor >= 8,
            reservation_must_fit: minor >= 13,
            unmap_counts_for_pool: minor >= 5,
            private_pools_as_captures: minor <= 12,
            use_on_oom: match minor {
                ..=7 => UseOnOom::Never,
                8..=10 => UseOnOom::Last,
                11.. => UseOnOom::BeforeReclaiming,
            },
            can_reject: minor >= 12,
        }
    }
}
