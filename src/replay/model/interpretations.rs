//! The ways in which the entries before a request can have come about.
//!
//! A trace says that frees were completed and memory was given back before a request was served, not
//! why: a completion may have been noticed when the request began, or waited for because it could not
//! be served; memory may have been given back for it, or by a call of `empty_cache()` before it. Every
//! reading that is consistent with the model's state is listed, the likeliest first.

use crate::allocator::{CachingAllocator, Request, PendingFreeId};
use crate::base::ids::{PoolId, StackId};
use crate::replay::ops::Boundary;
use crate::snapshot::{Action, TraceEntry};

/// What happened in a request before it was served or failed.
#[derive(Debug, Default)]
pub(super) struct Prelude {
    /// The first row of the request.
    pub(super) first_entry: usize,
    /// Completed frees, with their rows.
    pub(super) completed: Vec<(usize, PendingFreeId)>,
    /// How many of them before memory was first moved.
    pub(super) completed_before_moves: usize,
    pub(super) first_move: Option<usize>,
    pub(super) has_released: bool,
}

/// One way to read a [`Prelude`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Interpretation {
    /// The request's first row; what is before was done by `empty_cache()`.
    pub(super) first_entry: usize,
    /// How many of the completions were noticed at once; the others were waited for.
    pub(super) polled_count: usize,
    pub(super) is_capturing: bool,
}

/// The ways in which the entries before a request can have come about, the likeliest first.
pub(super) fn interpretations(
    allocator: &mut CachingAllocator,
    freeable: &[PoolId],
    event: &TraceEntry,
    (pool, id): (PoolId, [u64; 2]),
    boundary: Option<Boundary>,
    prelude: &Prelude,
) -> Vec<Interpretation> {
    let failed = event.action == Action::Oom;
    let mut plain =
        Interpretation { first_entry: prelude.first_entry, polled_count: prelude.completed_before_moves, is_capturing: false };
    let mut readings = vec![plain];
    if prelude.first_move.is_some() || failed {
        // Completions before memory was moved were noticed at the start of the request, or while
        // everything was waited for; not at the start if that would have served the request.
        let request = request_from_entry(event, pool);
        let early = prelude.completed.get(..prelude.completed_before_moves).unwrap_or_default();
        if !early.is_empty() {
            let mut trial = allocator.clone();
            let mut unserved = Vec::new();
            for noticed in 0..=early.len() {
                if !trial.has_free_block(&request) {
                    unserved.push(Interpretation { polled_count: noticed, ..plain });
                }
                if let Some((_, ticket)) = early.get(noticed) {
                    trial.complete_free(*ticket, StackId::default());
                }
            }
            unserved.reverse();
            if let Some(likeliest) = unserved.first() {
                plain = *likeliest;
                readings = unserved;
            }
        }
    }
    if failed && prelude.has_released && pool != PoolId::default() {
        readings.push(Interpretation { is_capturing: true, ..plain });
    }
    if failed && !prelude.has_released {
        // Nothing was waited for or given back, though there was something: only a capture keeps
        // PyTorch from it. A capture's own pool has an id of one number.
        let is_private = pool != PoolId::default();
        let is_of_capture =
            is_private && (id[1] == 0 || allocator.behaviour().private_pools_as_captures);
        let known: Vec<PendingFreeId> = prelude.completed.iter().map(|(_, ticket)| *ticket).collect();
        plain.is_capturing = is_of_capture
            || allocator.has_pending_other_than(&known)
            || (plain.polled_count == known.len() && allocator.has_releasable_memory(freeable));
        return vec![plain];
    }
    if let Some(Boundary { first_entry: row, is_likely }) = boundary {
        let later = Interpretation { first_entry: row, polled_count: prelude.completed.len(), ..plain };
        readings.insert(if is_likely { 0 } else { readings.len() }, later);
    }
    readings
}

/// The request that an entry records, with nothing known of its circumstances.
pub(super) fn request_from_entry(event: &TraceEntry, pool: PoolId) -> Request<'static> {
    Request { pool, context: event.stack, ..Request::in_default_pool(event.size, event.stream) }
}
