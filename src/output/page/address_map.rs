//! Maps device addresses to a line without the gaps between segments, which the page draws as one tape.

use itertools::Itertools as _;

use crate::study::lifetimes::{AllocationLifetime, SegmentRange};

/// PyTorch rounds all addresses and sizes to this many bytes (`kMinBlockSize`).
const UNIT: u64 = 512;

/// Units between two regions, so that ranges that are not adjacent in memory do not touch on the tape.
const REGION_GAP: u64 = 1;

/// The regions of the address space, one after the other.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// In bytes: the largest power of two up to [`UNIT`] that divides all addresses and sizes.
    pub(super) unit: u64,
    /// Start address, end address, and the number of units before the region.
    regions: Vec<(u64, u64, u64)>,
}

impl AddressMap {
    pub(super) fn new(allocations: &[AllocationLifetime], segments: &[SegmentRange]) -> Self {
        let bits = allocations.iter().fold(UNIT, |bits, one| bits | one.address | one.bytes);
        let bits = segments.iter().fold(bits, |bits, one| bits | one.address | one.bytes);
        let unit = 1 << bits.trailing_zeros();
        let ranges = segments.iter().map(|one| (one.address, one.end_address())).sorted_unstable();
        let ranges =
            ranges.coalesce(
                |(from, to), (next, next_to)| {
                    if next <= to { Ok((from, to.max(next_to))) } else { Err(((from, to), (next, next_to))) }
                },
            );
        let mut units = 0_u64;
        let regions = ranges.map(|(from, to)| {
            let before = units;
            units = units.saturating_add((to - from) / unit).saturating_add(REGION_GAP);
            (from, to, before)
        });
        Self { unit, regions: regions.collect() }
    }

    /// The position of `address` on the tape, in units.
    pub(super) fn offset_of(&self, address: u64) -> u64 {
        let after = self.regions.partition_point(|(from, ..)| *from <= address);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        region.map_or(0, |(from, _, before)| before.saturating_add((address - from) / self.unit))
    }

    /// Start address in hexadecimal and length in units of each region, including the gap after it.
    pub(super) fn regions(&self) -> Vec<(String, u64)> {
        let describe = |(from, to, _): &(u64, u64, u64)| {
            (format!("{from:#x}"), ((to - from) / self.unit).saturating_add(REGION_GAP))
        };
        self.regions.iter().map(describe).collect()
    }
}
