//! Where expandable segments are reserved.

use super::pool_index::{PoolIndex, is_small_pool_memory};
use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::snapshot::{Action, Device};

/// Where expandable segments are reserved, as far as mapped addresses tell.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Every mapping, in the order of the trace.
    mappings: Vec<Mapping>,
    /// The lowest address that was ever mapped or unmapped for each (stream, half).
    lowest: SeededMap<(u64, bool), u64>,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    entry_index: usize,
    /// If recorded, or known from the final segments.
    pool: Option<PoolId>,
    stream: u64,
    is_small: bool,
    addr: u64,
}

impl Reservations {
    pub(crate) fn new(device: Device<'_>) -> Self {
        let mut reservations = Self::default();
        let index = PoolIndex::from_device(device);
        let maps = |action| matches!(action, Action::SegmentMap | Action::SegmentUnmap);
        for (row, event) in device.entries_where(maps) {
            let (stream, is_small, addr) = (event.stream, is_small_pool_memory(&event), event.addr);
            let lowest = reservations.lowest.entry((stream, is_small)).or_insert(addr);
            *lowest = addr.min(*lowest);
            if event.action == Action::SegmentMap {
                let pool = event.pool.or_else(|| index.pool_at(addr));
                reservations.mappings.push(Mapping { entry_index: row, pool, stream, is_small, addr });
            }
        }
        reservations
    }

    /// Where the reservation begins around memory that was mapped before the recording, at `addr` and above.
    pub(crate) fn base(&self, stream: u64, is_small: bool, addr: u64) -> u64 {
        let lowest = self.lowest.get(&(stream, is_small));
        lowest.map_or(addr, |lowest| addr.min(*lowest))
    }

    /// The first address mapped from entry `from` on for a pool, stream and half, among those that are
    /// `usable`.
    pub(crate) fn next_mapped(
        &self,
        from: usize,
        (pool, stream, is_small): (PoolId, u64, bool),
        usable: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let first = self.mappings.partition_point(|map| map.entry_index < from);
        let mut later = self.mappings.get(first..)?.iter();
        let is_alike = |map: &&Mapping| {
            map.stream == stream
                && map.is_small == is_small
                && map.pool.is_none_or(|of| of == pool)
                && usable(map.addr)
        };
        later.find(is_alike).map(|map| map.addr)
    }
}
