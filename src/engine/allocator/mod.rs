//! A model of PyTorch's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`, backend `native`).
//!
//! In come [`Request`]s and frees, the allocator's settings ([`conf`]) and a [`device::DeviceMemory`].
//! [`CachingAllocator`] makes PyTorch's decisions in PyTorch's order: which block serves a request, whether to
//! split it, when to allocate from the device, what to release. Out come the same trace entries, statistics and
//! memory map. [`Behaviour`] holds the differences between releases. `docs/allocator-model.md` describes the rules.
//!
//! The model does not know snapshots, time or reports. A stack is an opaque number.

mod block;
mod caching;
pub mod conf;
pub mod device;
mod expandable;
mod found_block;
mod free_set;
mod initial_ages;
#[doc(hidden)]
mod initial_memory;
mod pool;
mod reclaim;
mod recorded_choices;
pub mod releases;
mod request;
mod search;
mod size;
mod stats;
pub mod trace_action;
pub mod verdict;
mod view;

#[cfg(test)]
mod tests;

pub use block::BlockId;
pub use caching::CachingAllocator;
#[doc(hidden)]
pub use initial_memory::{InitialMemory, InitialSegment};
pub use releases::{Behaviour, TieBreak};
pub use request::{AllocatorEntry, PendingFreeId, Request, ServedBy};
pub use size::{
    SMALL_SEGMENT, block_size, granule_size, is_small_request, max_growth, round_size, segment_size,
    whole_granule_bytes, whole_granules,
};
pub use stats::{AllocatorStatistics, RunFigures, Stat, StatByPool};
pub use view::{BlockView, DeviceRange, SegmentView};
