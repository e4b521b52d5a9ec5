//! The rules of PyTorch's caching allocator (`c10/cuda/CUDACachingAllocator.cpp`, backend `native`).
//!
//! A pure machine: it knows no snapshots, stacks, time or reports. So far the arithmetic of sizes.

mod size;

pub use size::{SMALL_SEGMENT, block_size, granule, is_small_request, round_size, segment_size};
