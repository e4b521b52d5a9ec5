//! Sums up a device's memory at one position: totals, pools, streams, fragmentation, and live blocks by stack and line.
//!
//! In: segments and blocks, of the snapshot or of a replay. [`report_memory`] computes the totals, `sums` adds up
//! blocks by any key, and reports live blocks by stack and line.

mod sums;

use std::collections::BTreeMap;

use serde::Serialize;

pub use self::sums::{
    BlockSum, BlockSums, HeldBlock, Holder, LiveByStack, NamedShare, Share, TopRows, first_holders, largest_operation,
    sorted_by_bytes, sum_by_key, sum_live_by_stack, top_holders, top_rows,
};
use crate::allocator::conf::Settings;
use crate::allocator::{granule_size, whole_granule_bytes};
use crate::snapshot::{Block, BlockState, Pools, Segment};
use crate::study::figures::MemoryState;
pub use crate::study::figures::{BlockTotals, SegmentTotals, SizedCount};

/// The memory of a pool or a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// Bytes in its segments.
    pub reserved_bytes: u64,
    /// Bytes in live blocks.
    pub allocated_bytes: u64,
    /// Bytes in freed blocks that another stream may still use.
    pub pending_bytes: u64,
    /// Bytes in free blocks.
    pub inactive_bytes: u64,
}

/// One pool of the allocator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// Pool id; (0, 0) is the default pool, others are private (CUDA graphs, `MemPool`).
    pub pool_id: [u64; 2],
    /// Its memory.
    #[serde(flatten)]
    pub bytes: MemoryUse,
    /// Raw handles of its streams, ascending.
    pub streams: Vec<u64>,
}

/// All private pools (CUDA graphs, `MemPool`) together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PrivatePools {
    /// Number of pools.
    pub count: u64,
    /// Bytes in their segments.
    pub reserved_bytes: u64,
    /// Bytes in free blocks, which only the pool of the block can use.
    pub inactive_bytes: u64,
}

impl PrivatePools {
    fn from_pools(pools: &[PoolReport]) -> Option<Self> {
        let mut sum = Self::default();
        for pool in pools.iter().filter(|pool| pool.pool_id != [0, 0]) {
            sum.count += 1;
            sum.reserved_bytes = sum.reserved_bytes.saturating_add(pool.bytes.reserved_bytes);
            sum.inactive_bytes = sum.inactive_bytes.saturating_add(pool.bytes.inactive_bytes);
        }
        (sum.count > 0).then_some(sum)
    }
}

/// One stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Raw handle; 0 is the default stream.
    pub stream: u64,
    /// Its memory.
    #[serde(flatten)]
    pub bytes: MemoryUse,
    /// Size of the largest free block in bytes.
    pub largest_free_block_bytes: u64,
}

/// How much of the reserved memory is free, and how usable the free part is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Fragmentation {
    /// 1 - allocated / reserved; 0 if nothing is reserved.
    pub gap_ratio: f64,
    /// Free bytes in segments that have other blocks too; expandable segments excluded.
    pub inactive_split_bytes: u64,
    /// `inactive_split_bytes` / reserved bytes.
    pub inactive_split_ratio: f64,
    /// Free bytes that `empty_cache()` would release: free segments and free granules of expandable segments, of the
    /// default pool. Private pools keep their memory while in use.
    pub releasable_bytes: u64,
    /// Free bytes that `empty_cache()` would not release.
    pub stranded_bytes: u64,
    /// `stranded_bytes` / reserved bytes.
    pub stranded_ratio: f64,
    /// Size of the largest free block of any stream and pool in bytes.
    pub largest_free_block_bytes: u64,
    /// 1 - largest free block / all free bytes; 0 if nothing is free.
    pub external_ratio: f64,
    /// Bytes by which active blocks exceed their requests.
    pub rounding_bytes: u64,
    /// `rounding_bytes` / active bytes.
    pub rounding_ratio: f64,
}

/// A device's memory at one position.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Bytes in segments.
    pub reserved_bytes: u64,
    /// Bytes in live blocks.
    pub allocated_bytes: u64,
    /// Bytes in live blocks and in freed blocks that another stream may still use.
    pub active_bytes: u64,
    /// Requested bytes of the active blocks.
    pub requested_bytes: u64,
    /// Segments by kind.
    pub segments: SegmentTotals,
    /// Blocks by state.
    pub blocks: BlockTotals,
    /// Pools, the default pool first.
    pub pools: Vec<PoolReport>,
    /// The sum of all private pools; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_pools: Option<PrivatePools>,
    /// Streams, ascending.
    pub streams: Vec<StreamReport>,
    /// Fragmentation of the free memory.
    pub fragmentation: Fragmentation,
    /// The totals from which figures are computed.
    #[serde(skip)]
    pub state: MemoryState,
}

/// Sums up `segments`, whose blocks are ranges of `all_blocks`.
pub fn report_memory<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
    all_pools: &Pools,
    settings: &Settings,
) -> MemoryReport {
    let mut state = MemoryState::default();
    let mut pools: BTreeMap<[u64; 2], PoolReport> = BTreeMap::new();
    let mut streams: BTreeMap<u64, StreamReport> = BTreeMap::new();
    for segment in segments {
        let blocks = segment.blocks_in(all_blocks);
        add_segment(&mut state, segment, blocks, settings);
        let id = all_pools.get(segment.pool);
        let pool = pools.entry(id).or_insert_with(|| PoolReport { pool_id: id, ..PoolReport::default() });
        pool.bytes.add(segment, blocks);
        if let Err(at) = pool.streams.binary_search(&segment.stream) {
            pool.streams.insert(at, segment.stream);
        }
        let stream = streams.entry(segment.stream).or_default();
        stream.stream = segment.stream;
        stream.bytes.add(segment, blocks);
        let free = blocks.iter().filter(|block| block.state == BlockState::Inactive).map(|block| block.size);
        stream.largest_free_block_bytes = free.fold(stream.largest_free_block_bytes, u64::max);
    }
    let pools: Vec<PoolReport> = pools.into_values().collect();
    let private_pools = PrivatePools::from_pools(&pools);
    let private = private_pools.unwrap_or_default();
    (state.private_reserved, state.private_free) = (private.reserved_bytes, private.inactive_bytes);
    MemoryReport {
        reserved_bytes: state.reserved,
        allocated_bytes: state.blocks.active_allocated.bytes,
        active_bytes: state.active(),
        requested_bytes: state.requested,
        segments: state.segments,
        blocks: state.blocks,
        pools,
        private_pools,
        streams: streams.into_values().collect(),
        fragmentation: Fragmentation {
            gap_ratio: state.gap_ratio(),
            inactive_split_bytes: state.inactive_split,
            inactive_split_ratio: state.inactive_split_ratio(),
            releasable_bytes: state.releasable,
            stranded_bytes: state.stranded(),
            stranded_ratio: state.stranded_ratio(),
            largest_free_block_bytes: state.largest_free_block,
            external_ratio: state.external_ratio(),
            rounding_bytes: state.rounding,
            rounding_ratio: state.rounding_ratio(),
        },
        state,
    }
}

impl MemoryUse {
    fn add(&mut self, segment: &Segment, blocks: &[Block]) {
        self.reserved_bytes = self.reserved_bytes.saturating_add(segment.total_size);
        for block in blocks {
            let sum = match block.state {
                BlockState::ActiveAllocated => &mut self.allocated_bytes,
                BlockState::ActivePendingFree => &mut self.pending_bytes,
                BlockState::Inactive => &mut self.inactive_bytes,
            };
            *sum = sum.saturating_add(block.size);
        }
    }
}

/// Adds `segment` with its `blocks` to the totals.
fn add_segment(sum: &mut MemoryState, segment: &Segment, blocks: &[Block], settings: &Settings) {
    sum.reserved = sum.reserved.saturating_add(segment.total_size);
    sum.segments.count += 1;
    let same_pools = if segment.is_small { &mut sum.segments.small } else { &mut sum.segments.large };
    same_pools.add(segment.total_size);
    if segment.is_expandable {
        sum.segments.expandable.add(segment.total_size);
    }
    for block in blocks {
        match block.state {
            BlockState::ActiveAllocated => sum.blocks.active_allocated.add(block.size),
            BlockState::ActivePendingFree => sum.blocks.active_pending_free.add(block.size),
            BlockState::Inactive => {
                sum.blocks.inactive.add(block.size);
                sum.largest_free_block = sum.largest_free_block.max(block.size);
                if blocks.len() > 1 && !segment.is_expandable {
                    sum.inactive_split = sum.inactive_split.saturating_add(block.size);
                }
                let part = releasable_bytes(segment, blocks.len(), block, settings);
                sum.releasable = sum.releasable.saturating_add(part);
                continue;
            }
        }
        sum.requested = sum.requested.saturating_add(block.requested_size);
        sum.rounding = sum.rounding.saturating_add(block.size.saturating_sub(block.requested_size));
    }
}

/// Bytes of a free block that `empty_cache()` would release. `blocks` is the number of blocks in its segment.
fn releasable_bytes(segment: &Segment, blocks: usize, block: &Block, settings: &Settings) -> u64 {
    if segment.pool != Pools::DEFAULT {
        return 0;
    }
    if !segment.is_expandable {
        return if blocks == 1 { block.size } else { 0 };
    }
    // A mapped range starts at a granule, so granules are aligned to its start.
    let offset = block.address.saturating_sub(segment.address);
    whole_granule_bytes(offset, block.size, granule_size(segment.is_small, settings))
}
