//! The allocator's input (requests) and output (trace entries).

use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId};

pub(super) const DEFAULT_POOL: PoolId = PoolId(0);

/// A trace entry that the model writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AllocatorEntry {
    /// The kind of entry, which decides the meaning of `addr` and `size`.
    pub action: Action,
    /// Address, or the free bytes of the device for [`Action::Oom`].
    pub addr: u64,
    /// Requested bytes (alloc, free), or bytes of the segment.
    pub size: u64,
    /// Raw handle of the stream of the block or segment.
    pub stream: u64,
    /// Pool of the block or segment.
    pub pool: PoolId,
    /// Stack of the call that caused the entry.
    pub context: StackId,
}

/// A pending free: a block that waits for events of other streams. Ids are unique and ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PendingFreeId(pub(super) u64);

/// A call of `malloc`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// Requested bytes, before rounding.
    pub size: u64,
    /// Raw handle of the current stream.
    pub stream: u64,
    /// Private pool of a graph capture or `MemPool`, or the default pool.
    pub pool: PoolId,
    /// Stack that entries and the block refer to; the allocator only stores it.
    pub context: StackId,
    /// Pending frees that `process_events` finds completed, in this order.
    pub finished: &'a [PendingFreeId],
    /// The order in which `synchronize_and_free_events` completes pending frees. Those not listed follow in the
    /// order in which they were freed.
    pub wait_order: &'a [PendingFreeId],
    /// Pools without users (`graph_pools_freeable`): their free memory can be released too.
    pub freeable: &'a [PoolId],
    /// During a CUDA graph capture the allocator neither waits for events nor releases cached blocks.
    pub is_capturing: bool,
}

impl Request<'_> {
    /// A request for the default pool, with no stack and no completed events.
    pub fn in_default_pool(size: u64, stream: u64) -> Self {
        Self { size, stream, ..Self::default() }
    }
}

/// `AllocParams`: what `malloc` derives from a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocParams {
    pub(super) free_list: u32,
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    /// Rounded bytes.
    pub(super) size: u64,
    /// Bytes of a new segment for it.
    pub(super) alloc_size: u64,
    /// Whether the settings give this pool expandable segments.
    pub(super) is_expandable: bool,
    pub(super) context: StackId,
}

/// How the last request was served. Explains divergences of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServedBy {
    /// By a free block.
    #[default]
    Cached,
    /// By a new segment or newly mapped memory, without releasing anything first.
    Grown,
    /// By new memory, after `release_available_cached_blocks`.
    GrownAfterRelease,
    /// By new memory, after `release_cached_blocks`.
    GrownAfterRetry,
    /// Not served: out of memory.
    Failed,
    /// Rejected by `throw_on_cudamalloc_oom`.
    Rejected,
}
