//! Which pool memory of an address is of, as far as the final segments tell.

use super::tiling::Run;
use crate::allocator::SMALL_SEGMENT;
use crate::ids::PoolId;
use crate::snapshot::{Action, Device, TraceEntry};
use crate::units::MIB;

/// The pools of the final segments by address: before PyTorch 2.12 entries do not name their pool.
#[derive(Debug)]
pub(crate) struct PoolIndex(Vec<(u64, u64, PoolId)>);

impl PoolIndex {
    pub(crate) fn of(device: Device<'_>) -> Self {
        let mut index: Vec<_> =
            device.segments().map(|s| (s.address, s.total_size, s.pool)).collect();
        index.sort_unstable();
        Self(index)
    }

    /// The pool of the final segment around `addr`.
    pub(crate) fn pool_at(&self, addr: u64) -> Option<PoolId> {
        let after = self.0.partition_point(|(address, ..)| *address <= addr);
        let (address, size, pool) = self.0.get(after.checked_sub(1)?)?;
        (addr - address < *size).then_some(*pool)
    }

    /// A run of device memory as `event` describes it.
    pub(crate) fn run_of(&self, event: &TraceEntry) -> Run {
        let pool = event.pool.or_else(|| self.pool_at(event.addr)).unwrap_or_default();
        Run {
            addr: event.addr,
            size: event.size,
            pool,
            stream: event.stream,
            is_small: is_of_small_half(event),
            is_expandable: matches!(event.action, Action::SegmentMap | Action::SegmentUnmap),
        }
    }
}

/// Whether memory that moved belongs to a pool's half for requests up to 1 MiB. That half takes 2 MiB at a
/// time, but gives back as many in one go as are free side by side in an expandable segment; the other
/// half never moves less than `large_segment_size_mb`, which is more than 10 MiB.
pub(crate) fn is_of_small_half(event: &TraceEntry) -> bool {
    match event.action {
        Action::SegmentUnmap => event.size <= 10 * MIB,
        _ => event.size == SMALL_SEGMENT,
    }
}
