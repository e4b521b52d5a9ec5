//! The literal pass: a device's trace applied as facts.
//!
//! [`Literal`] takes every address and size as recorded, and only what the trace leaves out is
//! inferred, from rules that follow from the facts and the settings (how much of a free block an
//! allocation took, [`crate::allocator::block_size`]). It decides nothing that the allocator decided.
//! Where the recording starts at an empty allocator the totals are exact; where it does not, `start`
//! rebuilds the start by undoing the trace from the final segments.
//!
//! Every step is shown to an observer with the totals and the [`Tiling`] at that moment; memory is
//! bounded by the live blocks, not by the trace. Allocated memory never exceeds reserved memory,
//! whatever the file says, since blocks exist only inside segments.

mod completions;
mod foreign;
mod layout;
mod replay;
mod pool_index;
mod reservations;
mod sampler;
mod segment_pools;
mod settings;
mod capacity;
mod initial_state;
mod tiling;
mod totals;

pub use completions::is_completed_at_once;
pub(crate) use completions::lacks_completions;
pub(crate) use foreign::warn_if_foreign;
pub use layout::Layout;
pub use replay::{SettingsChange, LiteralReplay, LiteralOutcome, ReplayStep};
pub(crate) use pool_index::PoolIndex;
pub(crate) use reservations::Reservations;
pub use sampler::{Bucket, SeriesPeak, Sampler};
pub(crate) use segment_pools::{DEFAULT_STREAM, SegmentPools, no_split_pools};
pub use settings::{candidate_releases, recorded_settings, settings_for_release};
pub use capacity::{inferred_capacity, inferred_limit};
pub(crate) use initial_state::InitialState;
pub(crate) use tiling::Change;
pub use tiling::{FreeKinds, Tracking, ContiguousRange, RangeBlock, Tiling};
pub use totals::{StreamPool, Totals};
