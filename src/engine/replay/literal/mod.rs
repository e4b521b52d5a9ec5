//! The trace of a device, applied literally.
//!
//! In: a snapshot's segments and trace. Out: after each entry, the totals and every block ([`Tiling`]), shown to an
//! observer; the state before the first entry; and the releases, settings and limits that the trace itself shows. Knows
//! nothing of the allocator's decisions: [`LiteralReplay`] takes each address and size as recorded, and infers only
//! what the trace omits, from the rules for block sizes ([`crate::allocator::block_size`]).
//!
//! If the recording starts with an empty allocator, the totals are exact. Otherwise `initial_state` reconstructs the
//! start by undoing the trace from the final segments. Memory use is bounded by the live blocks, not by the trace.
//! Allocated memory never exceeds reserved memory, whatever the file contains, since blocks exist only inside segments.

mod capacity;
mod completions;
mod foreign;
mod initial_state;
mod layout;
mod pool_index;
mod replay;
mod reservations;
mod sampler;
mod segment_pools;
mod settings;
mod tiling;
mod totals;

pub use capacity::{inferred_capacity, inferred_limit};
pub use completions::{is_completed_at_once, lacks_completions};
pub use foreign::warn_if_foreign;
pub(crate) use initial_state::InitialState;
pub use layout::Layout;
pub(crate) use pool_index::PoolIndex;
pub use replay::{LiteralOutcome, LiteralReplay, ReplayStep, SettingsChange};
pub(crate) use reservations::Reservations;
pub use sampler::{Bucket, Sampler, SeriesPeak};
pub(crate) use segment_pools::{DEFAULT_STREAM, SegmentPools, no_split_pools};
pub use settings::{candidate_releases, recorded_settings, settings_for_release};
pub(crate) use tiling::Change;
pub use tiling::{ContiguousRange, FreeKinds, RangeBlock, Tiling, Tracking};
pub use totals::{StreamPool, Totals};
