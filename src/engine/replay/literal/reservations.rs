//! The address reservations of expandable segments.

use super::pool_index::{PoolIndex, is_small_pool_memory};
use crate::base::ids::PoolId;
use crate::base::intern::SeededMap;
use crate::snapshot::{Action, Device};

/// The reservations of expandable segments, as far as mapped addresses show them.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// In order of entries.
    mappings: Vec<Mapping>,
    /// The lowest address that was ever mapped or unmapped, by stream and `is_small`.
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
        let moves = device.entries_where(|action| matches!(action, Action::SegmentMap | Action::SegmentUnmap));
        for (entry_index, entry) in moves {
            let (stream, is_small, addr) = (entry.stream, is_small_pool_memory(&entry), entry.addr);
            let lowest = reservations.lowest.entry((stream, is_small)).or_insert(addr);
            *lowest = addr.min(*lowest);
            if entry.action == Action::SegmentMap {
                let pool = entry.pool.or_else(|| index.pool_at(addr));
                reservations.mappings.push(Mapping { entry_index, pool, stream, is_small, addr });
            }
        }
        reservations
    }

    /// The base of the reservation around memory that was mapped before the recording, at `addr` and above.
    pub(crate) fn base(&self, stream: u64, is_small: bool, addr: u64) -> u64 {
        let lowest = self.lowest.get(&(stream, is_small));
        lowest.map_or(addr, |lowest| addr.min(*lowest))
    }

    /// The first address that is mapped from entry `first_entry` on for a pool, stream and size class, and that
    /// `is_usable`.
    pub(crate) fn next_mapped(
        &self,
        first_entry: usize,
        (pool, stream, is_small): (PoolId, u64, bool),
        is_usable: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let start = self.mappings.partition_point(|map| map.entry_index < first_entry);
        let mut later = self.mappings.get(start..)?.iter();
        let found = later.find(|map| {
            map.stream == stream
                && map.is_small == is_small
                && map.pool.is_none_or(|mapped| mapped == pool)
                && is_usable(map.addr)
        });
        found.map(|map| map.addr)
    }
}
