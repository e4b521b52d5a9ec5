//! Why a request failed: the one change that would have let it succeed.
//!
//! [`Verdict`] lists these causes, each with its word, its question and the advice. [`rule`] asks the
//! questions in their order: of a failure in a trace, of a hypothetical request and of a message in a log.
//! They differ in what is known. The figures of a snapshot
//! are exact and every kind of free memory is known apart from the others; those of a message are rounded
//! ([`About`]), and it has one figure for several kinds.
//!
//! This room knows only numbers, not snapshots, messages or wording.

mod approx_bytes;
mod advice;
mod ladder;
mod kinds;

pub use approx_bytes::{ApproxBytes, Likelihood, format_approx};
pub use advice::{Advice, EMPTY_CACHE_NO_REMEDY, EXPANDABLE_SEGMENTS, MONITOR, OUTSIDE_ALLOCATOR_USERS, Snippet};
pub use ladder::{MemoryAtFailure, FreeMemory, Diagnosis, USUAL_OUTSIDE, decide, reclaimable_outside};
pub use kinds::{Certainty, Verdict};

use serde::Serialize;

/// Where memory was that could have served a failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The verdict that it would have been: [`Verdict::Fragmentation`], [`Verdict::OtherStream`],
    /// [`Verdict::PrivatePool`], [`Verdict::PendingFree`], [`Verdict::NonPytorch`].
    pub kind: Verdict,
    /// How much there was.
    pub bytes: u64,
    /// What it is, in words.
    pub note: String,
}

/// The `causes` that there were, largest first.
pub fn largest_first(mut causes: Vec<Cause>) -> Vec<Cause> {
    causes.retain(|cause| cause.bytes > 0);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}
