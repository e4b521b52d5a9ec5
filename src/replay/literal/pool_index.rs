//! Which pool memory of an address is of, as far as the final segments tell.

use rustc_hash::FxHashSet;

use super::tiling::DeviceRange;
use crate::allocator::SMALL_SEGMENT;
use crate::base::ids::PoolId;
use crate::base::units::MIB;
use crate::snapshot::{Action, Device, TraceEntry};

/// The pools of the final segments by address: before PyTorch 2.12 entries do not name their pool.
#[derive(Debug)]
pub(crate) struct PoolIndex {
    /// Where each begins, its size and its pool, in order.
    segments: Vec<(u64, u64, PoolId)>,
    /// The entries that brought whole segments which are still there; what else was at their addresses was other
    /// memory.
    survivors: FxHashSet<usize>,
}

impl PoolIndex {
    pub(crate) fn from_device(device: Device<'_>) -> Self {
        let mut segments: Vec<_> =
            device.segments().map(|s| (s.address, s.total_size, s.pool)).collect();
        segments.sort_unstable();
        let mut survivors = FxHashSet::default();
        if segments.iter().any(|(.., pool)| *pool != PoolId::default()) {
            let mut gone = FxHashSet::default();
            let whole = |action| matches!(action, Action::SegmentAlloc | Action::SegmentFree);
            for (row, event) in device.entries_where(whole).rev() {
                if event.action == Action::SegmentFree {
                    gone.insert(event.addr);
                } else if !gone.contains(&event.addr) {
                    survivors.insert(row);
                    gone.insert(event.addr);
                }
            }
        }
        Self { segments, survivors }
    }

    /// The pool of the final segment around `addr`.
    pub(crate) fn pool_at(&self, addr: u64) -> Option<PoolId> {
        let after = self.segments.partition_point(|(address, ..)| *address <= addr);
        let (address, size, pool) = self.segments.get(after.checked_sub(1)?)?;
        (addr - address < *size).then_some(*pool)
    }

    /// Whether entry `row` brought a whole segment that is still there.
    pub(crate) fn is_surviving(&self, row: usize) -> bool {
        self.survivors.contains(&row)
    }

    /// The run of device memory that `event`, entry `row`, brought.
    pub(crate) fn added_range(&self, row: usize, event: &TraceEntry) -> DeviceRange {
        let is_there = event.action == Action::SegmentMap || self.is_surviving(row);
        range_from_entry(event, is_there.then(|| self.pool_at(event.addr)).flatten())
    }

    /// The run of device memory that `event` gave back.
    pub(crate) fn removed_range(&self, event: &TraceEntry) -> DeviceRange {
        // Expandable addresses stay with their pool as long as the reservation lives.
        let is_there = event.action == Action::SegmentUnmap;
        range_from_entry(event, is_there.then(|| self.pool_at(event.addr)).flatten())
    }
}

/// A run of device memory as `event` describes it, of pool `at_end` if it names none.
fn range_from_entry(event: &TraceEntry, at_end: Option<PoolId>) -> DeviceRange {
    DeviceRange {
        addr: event.addr,
        size: event.size,
        pool: event.pool.or(at_end).unwrap_or_default(),
        stream: event.stream,
        is_small: is_small_pool_memory(event),
        is_expandable: matches!(event.action, Action::SegmentMap | Action::SegmentUnmap),
    }
}

/// Whether memory that moved belongs to a pool's half for requests up to 1 MiB. That half takes 2 MiB at a
/// time, but gives back as many in one go as are free side by side in an expandable segment; the other
/// half never moves less than `large_segment_size_mb`, which is more than 10 MiB.
pub(crate) fn is_small_pool_memory(event: &TraceEntry) -> bool {
    match event.action {
        Action::SegmentUnmap => event.size <= 10 * MIB,
        _ => event.size == SMALL_SEGMENT,
    }
}
