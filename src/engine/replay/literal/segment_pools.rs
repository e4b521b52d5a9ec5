//! The pool of recorded memory, for releases whose entries do not name it (before PyTorch 2.12).

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::pool_index::{PoolIndex, is_small_pool_memory};
use crate::allocator::conf::Settings;
use crate::allocator::{block_size, is_small_request, round_size};
use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::snapshot::{Action, Block, BlockState, Device, TraceEntry};

/// The pools of recorded memory, updated entry by entry. Segments that exist at the end show their pool; memory that is
/// gone by then is assumed to be of the default pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct SegmentPools {
    /// All final segments are of the default pool.
    is_trivial: bool,
    /// The pool of each entry that takes memory from the device, by entry index.
    added: FxHashMap<usize, PoolId>,
    /// Memory that exists now: address to (end, pool).
    live: BTreeMap<u64, (u64, PoolId)>,
    /// The pool of all memory of a stream and `is_small`; `None` if it is of several pools.
    by_stream: SeededMap<(u64, bool), Option<PoolId>>,
}

/// The stream that programs use by default. Nothing is captured on it, so its requests go to the default pool unless
/// `use_mem_pool` directs them elsewhere.
pub(crate) const DEFAULT_STREAM: u64 = 0;

impl SegmentPools {
    pub(crate) fn new(device: Device<'_>) -> Self {
        let is_trivial = device.segments().all(|s| s.pool == PoolId::default());
        let mut pools = Self { is_trivial, ..Self::default() };
        if is_trivial {
            return pools;
        }
        let pool_index = PoolIndex::from_device(device);
        let mut allocated_later = FxHashSet::default();
        for (index, entry) in device.entries_where(Action::is_growth) {
            let pool = pool_index.added_range(index, &entry).pool;
            pools.record_stream_pool((entry.stream, is_small_pool_memory(&entry)), pool);
            pools.added.insert(index, pool);
            if pool_index.is_surviving(index) {
                allocated_later.insert(entry.addr);
            }
        }
        for segment in device.segments() {
            if !allocated_later.contains(&segment.address) {
                let end = segment.address.saturating_add(segment.total_size);
                pools.live.insert(segment.address, (end, segment.pool));
            }
            pools.record_stream_pool((segment.stream, segment.is_small), segment.pool);
        }
        pools
    }

    fn record_stream_pool(&mut self, stream: (u64, bool), pool: PoolId) {
        let known = self.by_stream.entry(stream).or_insert(Some(pool));
        *known = known.filter(|known| *known == pool);
    }

    /// The pool of the memory at the address of `entry`. A failed request has no address: on a stream other than the
    /// default, whose memory of this size class is all of one pool, as in a graph capture, it was for that pool.
    #[inline]
    pub(crate) fn pool_of(&self, entry: &TraceEntry) -> PoolId {
        match entry.pool {
            Some(pool) => pool,
            None if self.is_trivial => PoolId::default(),
            None if entry.action == Action::Oom => {
                let stream = (entry.stream, is_small_request(entry.size));
                let known = self.by_stream.get(&stream).filter(|_| entry.stream != DEFAULT_STREAM);
                // The default pool is the likeliest of several.
                known.copied().flatten().unwrap_or_default()
            }
            None => match self.live.range(..=entry.addr).next_back() {
                Some((_, (end, pool))) if entry.addr < *end => *pool,
                _ => PoolId::default(),
            },
        }
    }

    /// Applies an entry that changes reserved memory.
    pub(crate) fn apply_entry(&mut self, index: usize, entry: &TraceEntry) {
        if self.is_trivial || !entry.action.is_growth() {
            return;
        }
        let pool = entry.pool.or_else(|| self.added.get(&index).copied());
        debug_assert!(pool.is_some(), "every entry of the trace that takes memory is in `added`");
        let pool = pool.unwrap_or_default();
        let end = entry.addr.saturating_add(entry.size);
        if entry.action == Action::SegmentAlloc {
            // The memory that was there before was returned to the device.
            let before = self.live.range(..end).rev();
            let gone: Vec<u64> = before.take_while(|(_, (to, _))| *to > entry.addr).map(|(from, _)| *from).collect();
            for from in gone {
                self.live.remove(&from);
            }
        }
        self.live.insert(entry.addr, (end, pool));
    }
}

/// Private pools of `device` that never split blocks (`MemPool(no_split=True)`), as far as a final block shows it: in
/// any other pool it would have been split.
pub(crate) fn no_split_pools(device: Device<'_>, settings: &Settings) -> Vec<PoolId> {
    // Pools with an allocator of their own split as if segments were not expandable.
    let settings = Settings { expandable_segments: false, ..settings.clone() };
    let mut pools = Vec::new();
    for segment in device.segments() {
        let blocks = device.snapshot().blocks_of(segment);
        if segment.pool != PoolId::default()
            && !pools.contains(&segment.pool)
            && blocks.iter().any(|block| would_be_split(block, segment.is_small, &settings))
        {
            pools.push(segment.pool);
        }
    }
    pools
}

fn would_be_split(block: &Block, is_small: bool, settings: &Settings) -> bool {
    let rounded = round_size(block.requested_size, settings);
    block.state == BlockState::ActiveAllocated
        && block.requested_size > 0
        && block_size(rounded, block.size, is_small, settings) < block.size
}
