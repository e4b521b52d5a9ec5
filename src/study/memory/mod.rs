//! What one moment's memory amounts to: figures of its segments and blocks, and who holds it.
//!
//! The moment is the snapshot, or one of a replay laid out as a snapshot has it. [`figures`] adds up segments
//! and blocks; `sums` adds up blocks by whatever key; `holders` says which stacks and lines hold them.

mod holders;
mod sums;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

pub use self::holders::{HeldByLine, HeldByStack, live_by_stack};
pub(crate) use self::holders::{by_line, by_stack, main_operation};
pub use self::sums::{Share, Sum, TopRows};
pub(crate) use self::sums::{Sums, ranked, summed, table};
use crate::allocator::conf::Settings;
use crate::allocator::{granule_size, whole_granule_bytes};
use crate::snapshot::{Block, BlockState, Pools, Segment};
use crate::study::figures::{MemoryState, SegmentCounts};

/// How many, and how many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// How many.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Segments by kind: `small` and `large` share all of them out, `expandable` counts some of them again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SegmentTotals {
    /// All of them.
    pub count: u64,
    /// Of small pools.
    pub small: Count,
    /// Of large pools.
    pub large: Count,
    /// Mapped runs of expandable segments, small or large.
    pub expandable: Count,
}

/// Blocks of one state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockCount {
    /// How many.
    pub count: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of the largest.
    pub largest_bytes: u64,
}

impl BlockCount {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }
}

/// Blocks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockTotals {
    /// Held by the program.
    pub active_allocated: BlockCount,
    /// Freed, waiting for another stream.
    pub active_pending_free: BlockCount,
    /// Free.
    pub inactive: BlockCount,
}

/// One segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Where it begins in device memory.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of a small pool.
    pub small: bool,
    /// A mapped run of an expandable segment.
    pub expandable: bool,
    /// Its pool.
    pub pool_id: [u64; 2],
    /// Its stream's raw handle.
    pub stream: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Bytes held by the program.
    pub allocated_bytes: u64,
    /// Bytes free.
    pub inactive_bytes: u64,
    /// Of them, those that `empty_cache()` would give back.
    pub releasable_bytes: u64,
}

/// One pool of the allocator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolReport {
    /// (0, 0) is the default pool; others are private (CUDA graphs, `MemPool`).
    pub pool_id: [u64; 2],
    /// Bytes held from the device.
    pub reserved_bytes: u64,
    /// Bytes held by the program.
    pub allocated_bytes: u64,
    /// Bytes freed by the program, waiting for work on another stream.
    pub pending_bytes: u64,
    /// Bytes free.
    pub inactive_bytes: u64,
    /// Raw handles of its streams, ascending.
    pub streams: Vec<u64>,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamReport {
    /// Raw handle; 0 is the default stream.
    pub stream: u64,
    /// Bytes held from the device.
    pub reserved_bytes: u64,
    /// Bytes held by the program.
    pub allocated_bytes: u64,
    /// Bytes freed by the program, waiting for work on another stream.
    pub pending_bytes: u64,
    /// Bytes free.
    pub inactive_bytes: u64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
}

/// How much of the reserved memory is free, and how useful the free part is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Fragmentation {
    /// 1 - allocated / reserved.
    pub gap_ratio: f64,
    /// Free bytes in blocks that have a neighbour in their segment; not of expandable segments.
    pub inactive_split_bytes: u64,
    /// Of reserved.
    pub inactive_split_ratio: f64,
    /// Free bytes that `empty_cache()` would give back to the device: whole free segments and whole
    /// granules of expandable ones, of the default pool. Private pools keep theirs while in use.
    pub releasable_bytes: u64,
    /// Free bytes that it would not.
    pub stranded_bytes: u64,
    /// Of reserved.
    pub stranded_ratio: f64,
    /// The largest free block of any stream and pool.
    pub largest_free_block_bytes: u64,
    /// 1 - largest free block / all free bytes; 0 when nothing is free.
    pub external_ratio: f64,
    /// Bytes that active blocks are larger than what was asked for.
    pub rounding_bytes: u64,
    /// Of active.
    pub rounding_ratio: f64,
}

/// One device's memory at the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Held from the device.
    pub reserved_bytes: u64,
    /// In blocks that the program holds.
    pub allocated_bytes: u64,
    /// Allocated, or freed and waiting for another stream.
    pub active_bytes: u64,
    /// Asked for, of the active blocks.
    pub requested_bytes: u64,
    /// Segments by kind.
    pub segments: SegmentTotals,
    /// Blocks by state.
    pub blocks: BlockTotals,
    /// By pool, the default one first.
    pub pools: Vec<PoolReport>,
    /// By stream, ascending.
    pub streams: Vec<StreamReport>,
    /// The quality of the free part.
    pub fragmentation: Fragmentation,
}

/// Segments not listed one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OtherSegments {
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Bytes held by the program.
    pub allocated_bytes: u64,
    /// Bytes free.
    pub inactive_bytes: u64,
    /// Of them, those that `empty_cache()` would give back.
    pub releasable_bytes: u64,
}

/// The segments that are listed one by one, and all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SegmentList {
    /// Where most memory is free and stuck: by stranded bytes, then by free bytes, most first.
    pub top_segments: Vec<SegmentReport>,
    /// The sum over all other segments.
    pub other_segments: OtherSegments,
}

/// Adds up the segments `of` some moment, whose blocks are rows of `all_blocks`.
pub fn figures<'a>(
    of: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
    all_pools: &Pools,
    settings: &Settings,
) -> Memory {
    let mut memory = Memory::default();
    let mut pools: BTreeMap<[u64; 2], PoolReport> = BTreeMap::new();
    let mut streams: BTreeMap<u64, StreamReport> = BTreeMap::new();
    for segment in of {
        let blocks = all_blocks.get(segment.blocks.clone()).unwrap_or_default();
        memory.add(segment, blocks, settings);
        let id = all_pools.get(segment.pool);
        let pool = pools.entry(id).or_insert_with(|| PoolReport::new(id));
        pool.add(segment, blocks);
        let stream =
            streams.entry(segment.stream).or_insert_with(|| StreamReport::new(segment.stream));
        stream.add(segment, blocks);
    }
    memory.pools = pools.into_values().collect();
    memory.streams = streams.into_values().collect();
    memory.finish();
    memory
}

/// Lists the `top` segments `of` some moment, whose blocks are rows of `all_blocks`.
pub(crate) fn list_segments<'a>(
    of: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
    all_pools: &Pools,
    settings: &Settings,
    top: usize,
) -> SegmentList {
    let report = |segment: &Segment| {
        let blocks = all_blocks.get(segment.blocks.clone()).unwrap_or_default();
        SegmentReport::of(segment, blocks, all_pools.get(segment.pool), settings)
    };
    let mut segments: Vec<SegmentReport> = of.map(report).collect();
    segments.sort_by_key(|s| {
        let stranded = s.inactive_bytes.saturating_sub(s.releasable_bytes);
        (Reverse(stranded), Reverse(s.inactive_bytes), Reverse(s.bytes), s.address)
    });
    let mut other = OtherSegments::default();
    for s in segments.split_off(top.min(segments.len())) {
        other.count += 1;
        other.bytes = other.bytes.saturating_add(s.bytes);
        other.blocks += s.blocks;
        other.allocated_bytes = other.allocated_bytes.saturating_add(s.allocated_bytes);
        other.inactive_bytes = other.inactive_bytes.saturating_add(s.inactive_bytes);
        other.releasable_bytes = other.releasable_bytes.saturating_add(s.releasable_bytes);
    }
    SegmentList { top_segments: segments, other_segments: other }
}

/// Bytes of the `blocks` in `state`.
fn bytes_in(state: BlockState, blocks: &[Block]) -> u64 {
    let of_state = blocks.iter().filter(|block| block.state == state);
    of_state.fold(0u64, |sum, block| sum.saturating_add(block.size))
}

impl SegmentReport {
    fn of(segment: &Segment, blocks: &[Block], pool_id: [u64; 2], settings: &Settings) -> Self {
        let free = blocks.iter().filter(|block| block.state == BlockState::Inactive);
        let releasable = free.map(|block| releasable(segment, blocks.len(), block, settings));
        Self {
            address: segment.address,
            bytes: segment.total_size,
            small: segment.is_small,
            expandable: segment.is_expandable,
            pool_id,
            stream: segment.stream,
            blocks: blocks.len() as u64,
            allocated_bytes: bytes_in(BlockState::ActiveAllocated, blocks),
            inactive_bytes: bytes_in(BlockState::Inactive, blocks),
            releasable_bytes: releasable.fold(0, u64::saturating_add),
        }
    }
}

impl PoolReport {
    fn new(pool_id: [u64; 2]) -> Self {
        let [reserved_bytes, allocated_bytes, pending_bytes, inactive_bytes] = [0; 4];
        let streams = Vec::new();
        Self { pool_id, reserved_bytes, allocated_bytes, pending_bytes, inactive_bytes, streams }
    }

    fn add(&mut self, segment: &Segment, blocks: &[Block]) {
        let more = |sum: &mut u64, state| *sum = sum.saturating_add(bytes_in(state, blocks));
        self.reserved_bytes = self.reserved_bytes.saturating_add(segment.total_size);
        more(&mut self.allocated_bytes, BlockState::ActiveAllocated);
        more(&mut self.pending_bytes, BlockState::ActivePendingFree);
        more(&mut self.inactive_bytes, BlockState::Inactive);
        if let Err(at) = self.streams.binary_search(&segment.stream) {
            self.streams.insert(at, segment.stream);
        }
    }
}

impl StreamReport {
    fn new(stream: u64) -> Self {
        Self {
            stream,
            reserved_bytes: 0,
            allocated_bytes: 0,
            pending_bytes: 0,
            inactive_bytes: 0,
            largest_free_block_bytes: 0,
        }
    }

    fn add(&mut self, segment: &Segment, blocks: &[Block]) {
        let more = |sum: &mut u64, state| *sum = sum.saturating_add(bytes_in(state, blocks));
        self.reserved_bytes = self.reserved_bytes.saturating_add(segment.total_size);
        more(&mut self.allocated_bytes, BlockState::ActiveAllocated);
        more(&mut self.pending_bytes, BlockState::ActivePendingFree);
        more(&mut self.inactive_bytes, BlockState::Inactive);
        let free = blocks.iter().filter(|block| block.state == BlockState::Inactive);
        self.largest_free_block_bytes =
            free.map(|block| block.size).fold(self.largest_free_block_bytes, u64::max);
    }
}

impl Memory {
    fn add(&mut self, segment: &Segment, blocks: &[Block], settings: &Settings) {
        self.reserved_bytes = self.reserved_bytes.saturating_add(segment.total_size);
        self.segments.count += 1;
        if segment.is_small {
            self.segments.small.add(segment.total_size);
        } else {
            self.segments.large.add(segment.total_size);
        }
        if segment.is_expandable {
            self.segments.expandable.add(segment.total_size);
        }
        let free = &mut self.fragmentation;
        for block in blocks {
            match block.state {
                BlockState::ActiveAllocated => self.blocks.active_allocated.add(block.size),
                BlockState::ActivePendingFree => self.blocks.active_pending_free.add(block.size),
                BlockState::Inactive => {
                    self.blocks.inactive.add(block.size);
                    free.largest_free_block_bytes = free.largest_free_block_bytes.max(block.size);
                    if blocks.len() > 1 && !segment.is_expandable {
                        free.inactive_split_bytes =
                            free.inactive_split_bytes.saturating_add(block.size);
                    }
                    let part = releasable(segment, blocks.len(), block, settings);
                    free.releasable_bytes = free.releasable_bytes.saturating_add(part);
                    continue;
                }
            }
            self.requested_bytes = self.requested_bytes.saturating_add(block.requested_size);
            free.rounding_bytes =
                free.rounding_bytes.saturating_add(block.size.saturating_sub(block.requested_size));
        }
    }

    fn finish(&mut self) {
        self.allocated_bytes = self.blocks.active_allocated.bytes;
        let state = self.state();
        self.active_bytes = state.active();
        let f = &mut self.fragmentation;
        f.gap_ratio = state.gap_ratio();
        f.inactive_split_ratio = state.inactive_split_ratio();
        f.stranded_bytes = state.stranded();
        f.stranded_ratio = state.stranded_ratio();
        f.external_ratio = state.external_ratio();
        f.rounding_ratio = state.rounding_ratio();
    }

    /// In plain quantities.
    pub fn state(&self) -> MemoryState {
        let (segments, blocks, free) = (&self.segments, &self.blocks, &self.fragmentation);
        let private = self.pools.iter().filter(|pool| pool.pool_id != [0, 0]);
        let of_private =
            |bytes: fn(&PoolReport) -> u64| private.clone().map(bytes).fold(0, u64::saturating_add);
        let tally = |tally: Count| [tally.count, tally.bytes];
        MemoryState {
            reserved: self.reserved_bytes,
            allocated: self.allocated_bytes,
            pending: blocks.active_pending_free.bytes,
            free: blocks.inactive.bytes,
            requested: self.requested_bytes,
            rounding: free.rounding_bytes,
            largest_free_block: free.largest_free_block_bytes,
            releasable: free.releasable_bytes,
            inactive_split: free.inactive_split_bytes,
            private_reserved: of_private(|pool| pool.reserved_bytes),
            private_free: of_private(|pool| pool.inactive_bytes),
            segments: SegmentCounts {
                all: segments.count,
                small: tally(segments.small),
                large: tally(segments.large),
                expandable: tally(segments.expandable),
            },
            allocated_blocks: blocks.active_allocated.count,
            pending_blocks: blocks.active_pending_free.count,
            free_blocks: blocks.inactive.count,
        }
    }
}

/// Bytes of a free block that `empty_cache()` would give back.
fn releasable(segment: &Segment, blocks: usize, block: &Block, settings: &Settings) -> u64 {
    if segment.pool != Pools::DEFAULT {
        0
    } else if segment.is_expandable {
        // A mapped run begins at a granule, so offsets in it are offsets to granules.
        let offset = block.address.saturating_sub(segment.address);
        whole_granule_bytes(offset, block.size, granule_size(segment.is_small, settings))
    } else if blocks == 1 {
        block.size
    } else {
        0
    }
}
