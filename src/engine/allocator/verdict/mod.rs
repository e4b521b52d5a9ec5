//! Why a request failed: the one change that would have let it succeed.
//!
//! In comes [`MemoryAtFailure`]: the request, and the free memory of each kind. [`decide`] asks the questions of
//! [`Verdict`] in order and returns the first one answered yes. The input may describe a failure in a trace, a
//! hypothetical request or a message in a log. A snapshot gives exact bytes for each kind of memory; a message
//! gives rounded numbers ([`ApproxBytes`]), some of which cover several kinds.
//!
//! The module knows only numbers, not snapshots or messages.

mod approx_bytes;
mod kinds;
mod ladder;

pub use approx_bytes::{ApproxBytes, Likelihood, format_approx};
pub use kinds::{Certainty, Verdict};
pub use ladder::{Diagnosis, FreeMemory, MemoryAtFailure, USUAL_OUTSIDE, decide, reclaimable_outside};
