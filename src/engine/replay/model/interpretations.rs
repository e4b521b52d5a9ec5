//! The possible causes of the entries before a request.
//!
//! A trace shows that frees were completed and memory was released before a request was served, but not why. A
//! completion may have been polled when the request began, or waited for because the request could not be served.
//! Memory may have been released for the request, or by an `empty_cache()` before it.

use crate::allocator::releases::Rule;
use crate::allocator::{CachingAllocator, PendingFreeId, Request};
use crate::base::ids::{PoolId, StackId};
use crate::replay::ops::Boundary;
use crate::snapshot::{Action, TraceEntry};

/// The entries of a request before the one that serves or fails it.
#[derive(Debug, Default)]
pub(super) struct Prelude {
    pub(super) first_entry: usize,
    /// Completed frees with their entry indexes.
    pub(super) completed: Vec<(usize, PendingFreeId)>,
    /// How many of them come before the first entry that changes reserved memory.
    pub(super) completed_before_moves: usize,
    pub(super) first_move: Option<usize>,
    pub(super) has_released: bool,
}

/// One possible cause of a [`Prelude`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Interpretation {
    /// The request's first entry; those before are of an `empty_cache()`.
    pub(super) first_entry: usize,
    /// How many of the completions were polled when the request began; the others were waited for.
    pub(super) polled_count: usize,
    pub(super) is_capturing: bool,
}

/// All interpretations that are consistent with the state of `allocator`, the likeliest first. `id` is the recorded id
/// of `pool`.
pub(super) fn interpretations(
    allocator: &mut CachingAllocator,
    freeable: &[PoolId],
    entry: &TraceEntry,
    (pool, id): (PoolId, [u64; 2]),
    boundary: Option<Boundary>,
    prelude: &Prelude,
) -> Vec<Interpretation> {
    let has_failed = entry.action == Action::Oom;
    let mut plain = Interpretation {
        first_entry: prelude.first_entry,
        polled_count: prelude.completed_before_moves,
        is_capturing: false,
    };
    let mut interpretations = vec![plain];
    if prelude.first_move.is_some() || has_failed {
        // Completions before the first change of reserved memory were polled at the start of the request, or waited
        // for. Blocks that would have served the request were not polled.
        let request = request_from_entry(entry, pool);
        let early_completions = &prelude.completed[..prelude.completed_before_moves];
        if !early_completions.is_empty() {
            let mut allocator = allocator.clone();
            let mut unserved = Vec::new();
            for polled_count in 0..=early_completions.len() {
                if allocator.free_block_size(&request).is_none() {
                    unserved.push(Interpretation { polled_count, ..plain });
                }
                if let Some((_, pending_free)) = early_completions.get(polled_count) {
                    allocator.complete_free(*pending_free, StackId::default());
                }
            }
            unserved.reverse();
            if let Some(likeliest) = unserved.first() {
                plain = *likeliest;
                interpretations = unserved;
            }
        }
    }
    if has_failed && prelude.has_released && pool != PoolId::default() {
        interpretations.push(Interpretation { is_capturing: true, ..plain });
    }
    if has_failed && !prelude.has_released {
        // Nothing was waited for or released, although something could have been: PyTorch skips that in a capture only.
        // The id of a capture's own pool ends in 0.
        let is_private = pool != PoolId::default();
        let is_capture_pool = is_private && (id[1] == 0 || !allocator.behaviour.has(Rule::PrivatePoolsRetry));
        let known: Vec<PendingFreeId> = prelude.completed.iter().map(|(_, pending_free)| *pending_free).collect();
        plain.is_capturing = is_capture_pool
            || allocator.has_pending_other_than(&known)
            || (plain.polled_count == known.len() && allocator.has_releasable_memory(freeable));
        return vec![plain];
    }
    if let Some(Boundary { first_entry, is_likely }) = boundary {
        let after_release = Interpretation { first_entry, polled_count: prelude.completed.len(), ..plain };
        interpretations.insert(if is_likely { 0 } else { interpretations.len() }, after_release);
    }
    interpretations
}

/// The request that an entry records, without its circumstances.
pub(super) fn request_from_entry(entry: &TraceEntry, pool: PoolId) -> Request<'static> {
    Request { pool, context: entry.stack, ..Request::in_default_pool(entry.size, entry.stream) }
}
