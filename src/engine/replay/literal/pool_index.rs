//! The pool of an address, as far as the final segments show it.

use rustc_hash::FxHashSet;

use crate::allocator::{DeviceRange, SMALL_SEGMENT};
use crate::base::ids::PoolId;
use crate::base::units::MIB;
use crate::snapshot::{Action, Device, TraceEntry};

/// The pools of the final segments by address. Before PyTorch 2.12, entries do not name their pool.
#[derive(Debug)]
pub(crate) struct PoolIndex {
    /// (address, size, pool), sorted.
    segments: Vec<(u64, u64, PoolId)>,
    /// The `segment_alloc` entries of segments that still exist at the end. Other entries at those addresses belong to
    /// earlier segments.
    survivors: FxHashSet<usize>,
}

impl PoolIndex {
    pub(crate) fn from_device(device: Device<'_>) -> Self {
        let mut segments: Vec<_> = device.segments().map(|s| (s.address, s.total_size, s.pool)).collect();
        segments.sort_unstable();
        let mut survivors = FxHashSet::default();
        if segments.iter().any(|(.., pool)| *pool != PoolId::default()) {
            let mut seen = FxHashSet::default();
            let found = device.entries_where(|action| matches!(action, Action::SegmentAlloc | Action::SegmentFree));
            for (index, entry) in found.rev() {
                // The last entry at an address decides.
                if seen.insert(entry.addr) && entry.action == Action::SegmentAlloc {
                    survivors.insert(index);
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

    /// Whether entry `index` allocated a whole segment that exists at the end.
    pub(crate) fn is_surviving(&self, index: usize) -> bool {
        self.survivors.contains(&index)
    }

    /// The range that `entry`, at `index`, took from the device.
    pub(crate) fn added_range(&self, index: usize, entry: &TraceEntry) -> DeviceRange {
        let exists_at_end = entry.action == Action::SegmentMap || self.is_surviving(index);
        self.range(entry, exists_at_end)
    }

    /// The range that `entry` returned to the device.
    pub(crate) fn removed_range(&self, entry: &TraceEntry) -> DeviceRange {
        // The addresses of an expandable segment keep their pool as long as the reservation exists.
        self.range(entry, entry.action == Action::SegmentUnmap)
    }

    fn range(&self, entry: &TraceEntry, exists_at_end: bool) -> DeviceRange {
        DeviceRange {
            addr: entry.addr,
            size: entry.size,
            // Neither the entry nor a final segment names the pool: most programs have no other than the default.
            pool: entry.pool.or_else(|| self.pool_at(entry.addr).filter(|_| exists_at_end)).unwrap_or_default(),
            stream: entry.stream,
            is_small: is_small_pool_memory(entry),
            is_expandable: matches!(entry.action, Action::SegmentMap | Action::SegmentUnmap),
        }
    }
}

/// Whether memory that a segment entry adds or removes belongs to the small pool (requests up to 1 MiB). The small pool
/// takes 2 MiB at a time, but unmaps any number of adjacent free granules at once. The large pool never moves less than
/// `large_segment_size_mb`, which is more than 10 MiB.
pub(crate) fn is_small_pool_memory(entry: &TraceEntry) -> bool {
    match entry.action {
        Action::SegmentUnmap => entry.size <= 10 * MIB,
        _ => entry.size == SMALL_SEGMENT,
    }
}
