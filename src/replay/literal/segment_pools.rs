//! Which pool memory belongs to, in releases whose entries do not say (before 2.12).

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::pool_index::{PoolIndex, is_small_pool_memory};
use crate::allocator::conf::Settings;
use crate::allocator::{block_size, is_small_request, round_size};
use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::snapshot::{Action, Block, BlockState, Device, TraceEntry};

/// The pools of recorded memory as the trace goes on: a private pool is known from the segments that
/// are still there at the end; memory that is gone by then is taken to be of the default pool.
#[derive(Debug, Clone)]
pub(crate) struct SegmentPools {
    /// Nothing to find out: entries say it, or there is but one pool.
    is_trivial: bool,
    /// The pool of the memory that each growing entry brought.
    added: FxHashMap<usize, PoolId>,
    /// Recorded memory now: address to (end, pool).
    live: BTreeMap<u64, (u64, PoolId)>,
    /// The pool that all memory of a stream and size class is of; `None` where it is of several.
    by_stream: SeededMap<(u64, bool), Option<PoolId>>,
}

/// The stream that programs use unless they say otherwise, and the default pool with it.
pub(crate) const DEFAULT_STREAM: u64 = 0;

impl SegmentPools {
    pub(crate) fn new(device: Device<'_>) -> Self {
        let is_trivial = device.segments().all(|s| s.pool == PoolId::default());
        let mut pools = Self {
            is_trivial,
            added: FxHashMap::default(),
            live: BTreeMap::new(),
            by_stream: SeededMap::default(),
        };
        if is_trivial {
            return pools;
        }
        let index = PoolIndex::from_device(device);
        let mut brought = FxHashSet::default();
        for (row, event) in device.entries_where(Action::is_growth) {
            let pool = index.added_range(row, &event).pool;
            pools.record_stream_pool((event.stream, is_small_pool_memory(&event)), pool);
            pools.added.insert(row, pool);
            if index.is_surviving(row) {
                brought.insert(event.addr);
            }
        }
        for segment in device.segments() {
            if !brought.contains(&segment.address) {
                let end = segment.address.saturating_add(segment.total_size);
                pools.live.insert(segment.address, (end, segment.pool));
            }
            pools.record_stream_pool((segment.stream, segment.is_small), segment.pool);
        }
        pools
    }

    /// Takes note that a stream and size class has memory of `pool`.
    fn record_stream_pool(&mut self, of: (u64, bool), pool: PoolId) {
        let known = self.by_stream.entry(of).or_insert(Some(pool));
        *known = known.filter(|known| *known == pool);
    }

    /// The pool of the memory that an entry names. A failed request names none: where its stream, not
    /// being the default one, has memory like it of one pool alone, as that of a graph capture has, it
    /// was for that.
    #[inline]
    pub(crate) fn pool_of(&self, event: &TraceEntry) -> PoolId {
        match event.pool {
            Some(pool) => pool,
            None if self.is_trivial => PoolId::default(),
            None if event.action == Action::Oom => {
                let of = (event.stream, is_small_request(event.size));
                let known = self.by_stream.get(&of).filter(|_| event.stream != DEFAULT_STREAM);
                known.copied().flatten().unwrap_or_default()
            }
            None => match self.live.range(..=event.addr).next_back() {
                Some((_, (end, pool))) if event.addr < *end => *pool,
                _ => PoolId::default(),
            },
        }
    }

    /// Takes note of an entry that moves memory.
    pub(crate) fn apply_entry(&mut self, row: usize, event: &TraceEntry) {
        if self.is_trivial || !event.action.is_growth() {
            return;
        }
        let pool = event.pool.or_else(|| self.added.get(&row).copied()).unwrap_or_default();
        let end = event.addr.saturating_add(event.size);
        if event.action == Action::SegmentAlloc {
            // What was there before has been given back.
            let before = self.live.range(..end).rev();
            let gone: Vec<u64> =
                before.take_while(|(_, (to, _))| *to > event.addr).map(|(from, _)| *from).collect();
            for from in gone {
                self.live.remove(&from);
            }
        }
        self.live.insert(event.addr, (end, pool));
    }
}

/// Private pools of `device` that hand blocks out whole (`MemPool(no_split=True)`), as far as a block in the
/// end shows it: anywhere else it would have been cut.
pub(crate) fn no_split_pools(device: Device<'_>, settings: &Settings) -> Vec<PoolId> {
    // Pools over an allocator of the program's own are cut as if no segment were expandable.
    let settings = Settings { expandable_segments: false, ..settings.clone() };
    let would_be_cut = |block: &Block, is_small| {
        let rounded = round_size(block.requested_size, &settings);
        block.state == BlockState::ActiveAllocated
            && block.requested_size > 0
            && block_size(rounded, block.size, is_small, &settings) < block.size
    };
    let mut pools = Vec::new();
    for segment in device.segments() {
        let blocks = device.snapshot().blocks_of(segment);
        if segment.pool != PoolId::default()
            && !pools.contains(&segment.pool)
            && blocks.iter().any(|block| would_be_cut(block, segment.is_small))
        {
            pools.push(segment.pool);
        }
    }
    pools
}
