//! A call of the program, with the trace entries that it left.

use std::ops::Range;

use crate::base::ids::{PoolId, StackId};

/// What the program did, with the rows of its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// A request: the last entry says whether it was served. Where the trace does not tell whether
    /// memory was given back for it or before it, `boundary` is where it would begin.
    Malloc { rows: Range<usize>, pool: PoolId, boundary: Option<Boundary> },
    /// A free; `waits` when another stream still used the block.
    Free { rows: Range<usize>, waits: bool },
    /// Memory given back on request, with the private pools that gave some, in order; `of_all` says whether it was
    /// asked of all pools, though they may have had nothing to give. `stack` is where in the program, if recorded.
    Release { rows: Range<usize>, pools: Vec<PoolId>, of_all: bool, stack: StackId },
    /// An entry that is no work of the allocator.
    Note { row: usize },
}

/// A place before which memory may have been given back by another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// The first row of the later call.
    pub(crate) row: usize,
    /// Whether the device had room for the request without it.
    pub(crate) is_likely: bool,
}

impl Call {
    /// Its entries.
    pub(crate) fn rows(&self) -> Range<usize> {
        match self {
            Self::Malloc { rows, .. } | Self::Free { rows, .. } | Self::Release { rows, .. } => {
                rows.clone()
            }
            Self::Note { row } => *row..*row + 1,
        }
    }
}
