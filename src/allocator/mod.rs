//! PyTorch's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`, backend `native`), as a pure machine.
//!
//! [`CachingAllocator`] serves [`Request`]s and frees from a [`crate::allocator::device::DeviceMemory`], decides
//! everything that PyTorch decides (which block, whether to split, when to grow, what to give back) in
//! PyTorch's order, and writes the same trace and the same statistics. What differs between releases is
//! a value, [`Behaviour`]. The rules are described in `docs/allocator-model.md`.
//!
//! Knows no snapshots, no time and no reports; a stack is a number that it carries along.

mod adopt;
mod behaviour;
mod block;
mod caching;
pub mod conf;
pub mod device;
mod expandable;
mod free_set;
mod hand_out;
mod pool;
mod reclaim;
pub mod releases;
mod request;
mod restore;
mod search;
mod size;
mod stats;
pub mod terms;
pub mod verdict;
mod view;

#[cfg(test)]
mod tests;

pub use adopt::{Adopted, HeldSegment, Resident};
pub use behaviour::{Behaviour, TieBreak, UseOnOom};
pub use block::BlockId;
pub use caching::CachingAllocator;
pub use request::{Entry, Request, Service, Ticket};
pub use size::{
    SMALL_SEGMENT, block_size, granule, granules_in, is_small_request, most_taken, round_size,
    segment_size, whole_granules,
};
pub use stats::{AllocatorStatistics, Stat, StatByPool};
pub use view::{BlockView, SegmentView};
