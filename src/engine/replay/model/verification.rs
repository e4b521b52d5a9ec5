//! The result of a verification.

use super::divergence::Divergence;
use crate::allocator::{AllocatorEntry, CachingAllocator};

/// The model compared with a recording, entry by entry.
#[derive(Debug, Clone)]
pub struct Verification {
    /// The recording begins with an empty allocator.
    pub starts_empty: bool,
    /// Bytes reserved before the first entry.
    pub reserved_before: u64,
    /// Initial blocks that lie in no segment or overlap another block.
    pub misplaced_blocks: usize,
    /// Number of recorded entries.
    pub recorded: usize,
    /// Number of entries that the model wrote, up to the first divergence.
    pub predicted: usize,
    /// Number of equal entries, up to the first divergence.
    pub matched: usize,
    pub divergence: Option<Divergence>,
    /// Number of entries with an earlier time than the entry before.
    pub time_reversals: usize,
    /// Number of operations that the trace allows to interpret in several ways. Counters such as `num_alloc_retries`
    /// may be off by as much.
    pub ambiguous_ops: usize,
    /// The model's state after the last operation.
    pub allocator: CachingAllocator,
}

impl Verification {
    /// Whether every entry was reproduced.
    pub fn is_exact(&self) -> bool {
        self.divergence.is_none() && self.matched == self.recorded
    }
}

/// Receives every entry that the model writes, with the recorded time of its operation in microseconds.
pub type EntrySink<'a> = dyn FnMut(&AllocatorEntry, u64) + 'a;
