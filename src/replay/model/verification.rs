//! What a verification found.

use super::divergence::Divergence;
use crate::allocator::{CachingAllocator, AllocatorEntry};

/// What came of holding the model against a recording.
#[derive(Debug)]
pub struct Verification {
    /// Whether the recording begins with an allocator that holds nothing.
    pub starts_empty: bool,
    /// Bytes that it held before.
    pub reserved_before: u64,
    /// Blocks of before the recording that fit nowhere.
    pub misplaced_blocks: usize,
    /// Entries in the recording.
    pub recorded: usize,
    /// Entries that the model wrote, up to the end or the first divergence.
    pub predicted: usize,
    /// Entries that are equal, up to there.
    pub matched: usize,
    /// The first difference.
    pub divergence: Option<Divergence>,
    /// Entries whose time is earlier than that of the entry before.
    pub time_reversals: usize,
    /// Calls that the trace leaves several readings of, so that counters such as
    /// `num_alloc_retries` may be off by as much.
    pub ambiguous_ops: usize,
    /// The model's state after the last entry that it was given.
    pub allocator: CachingAllocator,
}

impl Verification {
    /// Whether every entry was reproduced.
    pub fn is_exact(&self) -> bool {
        self.divergence.is_none() && self.matched == self.recorded
    }
}

/// Sees every entry that the model writes, with the recorded time of its call.
pub type EntrySink<'a> = dyn FnMut(&AllocatorEntry, u64) + 'a;
