//! An operation of the program, with the trace entries that it wrote.

use std::ops::Range;

use crate::base::ids::{PoolId, StackId};

/// An operation; `entries` are the indexes of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceOp {
    /// A request. Its last entry says whether it was served. `boundary` is set where the entries before the last one
    /// may belong to an earlier release.
    Alloc { entries: Range<usize>, pool: PoolId, boundary: Option<Boundary> },
    /// A free. It is pending if another stream still uses the block.
    Free { entries: Range<usize>, is_pending: bool },
    /// Cached memory released on request: `empty_cache()`, or a `MemPool` that was dropped. `pools` are the private
    /// pools that released memory, in order. With `is_all_pools` the program asked all pools, even if some had nothing
    /// to release.
    Release { entries: Range<usize>, pools: Vec<PoolId>, is_all_pools: bool, stack: StackId },
    /// An entry that is no work of the allocator.
    Marker { entry_index: usize },
}

/// The entry at which a request begins if the entries before it belong to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    pub(crate) first_entry: usize,
    /// The device had room for the request without the release.
    pub(crate) is_likely: bool,
}

impl TraceOp {
    pub(crate) fn entries(&self) -> Range<usize> {
        match self {
            Self::Alloc { entries, .. } | Self::Free { entries, .. } | Self::Release { entries, .. } => entries.clone(),
            Self::Marker { entry_index } => *entry_index..*entry_index + 1,
        }
    }
}
