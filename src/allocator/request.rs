//! What goes into the allocator and what comes out of it.

use crate::allocator::terms::Action;
use crate::base::ids::{PoolId, StackId};

/// The default pool.
pub(super) const DEFAULT_POOL: PoolId = PoolId(0);

/// A line of the trace that the allocator writes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Address; free bytes of the device for [`Action::Oom`].
    pub addr: u64,
    /// Bytes: asked for (alloc, free), or of the memory (segments).
    pub size: u64,
    /// The block's stream.
    pub stream: u64,
    /// The block's pool.
    pub pool: PoolId,
    /// The stack that caused it.
    pub context: StackId,
}

/// A pending free: a block that waits for other streams. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// What a program asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Bytes.
    pub size: u64,
    /// The current stream's raw handle.
    pub stream: u64,
    /// The pool that serves it.
    pub pool: PoolId,
    /// Where in the program.
    pub context: StackId,
    /// Pending blocks whose work on other streams is done by now, in the order in which it is noticed.
    pub finished: &'a [Ticket],
    /// The order in which other pending blocks come back if everything has to be waited for; those
    /// not named follow in the order in which they were freed.
    pub wait_order: &'a [Ticket],
    /// Pools whose last user is gone: their free memory can be given back too.
    pub freeable: &'a [PoolId],
    /// In a CUDA graph capture nothing is waited for and nothing is given back.
    pub is_capturing: bool,
}

impl Request<'_> {
    /// A request of the default pool, of nobody in particular, with nothing else going on.
    pub fn plain(size: u64, stream: u64) -> Self {
        Self {
            size,
            stream,
            pool: DEFAULT_POOL,
            context: StackId::default(),
            finished: &[],
            wait_order: &[],
            freeable: &[],
            is_capturing: false,
        }
    }
}

/// A request in the allocator's own terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) free_list: u32,
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// Rounded bytes.
    pub(super) size: u64,
    /// Bytes of a segment for it.
    pub(super) segment: u64,
    /// Whether expandable segments serve it.
    pub(super) is_expandable: bool,
    pub(super) context: StackId,
}

/// How the last request was served: for explaining a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Service {
    /// From a free block.
    #[default]
    Cached,
    /// By a new segment or newly mapped memory, at once.
    Grown,
    /// The same after cached segments of the requested size or more were given back.
    GrownAfterRelease,
    /// The same after everything free was given back.
    GrownAfterRetry,
    /// From a pool lent for emergencies.
    Lent,
    /// Not at all.
    Failed,
    /// Refused because of `throw_on_cudamalloc_oom`.
    Rejected,
}
