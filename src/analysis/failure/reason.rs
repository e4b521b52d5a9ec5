//! The facts behind a verdict.

use serde::Serialize;

use super::outlook::{Filling, NextStep};
use crate::allocator::verdict::{MemoryAtFailure, Verdict};
use crate::replay::literal::Totals;

/// The facts behind a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerdictReason {
    /// The verdict that the memory at the failure alone gives.
    pub verdict: Verdict,
    /// The free memory of each kind.
    pub memory: MemoryAtFailure,
    /// The totals of the allocator.
    pub totals: Totals,
    /// Bytes of the totals that an engine had unmapped: they were not on the device.
    pub asleep_bytes: u64,
    /// Bytes of device memory in use outside this allocator.
    pub outside_bytes: u64,
    /// The setting `max_split_size`, in bytes.
    pub max_split_size: u64,
    /// Why free memory in one piece would not have helped for long; `None` if that is not known.
    pub dead_end: Option<DeadEnd>,
    /// The memory that serves a tried request, and the bytes of the cache that are released for it.
    pub served: Option<(Served, u64)>,
}

/// Why a program would have failed soon, under any layout of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadEnd {
    /// Its memory grows by this number of bytes a step.
    Growth(u64),
    /// Its next step needs more than would be left.
    NextStep(NextStep),
    /// The failing line fills memory.
    Filling(Filling),
    /// Its next step fails under every setting that was tried.
    EverySettingFails,
    /// Its memory exceeds the memory within reach.
    ExceedsReach,
    /// Nearly all memory within reach is in use; bytes.
    Full {
        /// The bytes that are not.
        unused: u64,
        /// All bytes within reach.
        reach: u64,
    },
}

/// The memory that would serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Served {
    /// `free-block` or `new-memory`.
    pub kind: &'static str,
    /// Address of the free block; null for new memory.
    pub address: Option<u64>,
    /// Size in bytes of the free block, or of the new device memory.
    pub bytes: u64,
}

/// A kind of memory that could have served a failed request, and why it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseNote {
    /// Free in the request's pool and stream: the size of the largest block, and whether it is large enough.
    Own(u64, bool),
    /// Free in blocks of other streams.
    OtherStream,
    /// Free in private pools, and the request was for the default pool.
    PrivatePools,
    /// Free in other pools, and the request was for a private pool.
    OtherPools,
    /// Free in pools, and the pool of the request is not known.
    UnknownPool,
    /// Freed, and waiting for work on another stream.
    Pending,
    /// In use outside this allocator.
    Outside,
}
