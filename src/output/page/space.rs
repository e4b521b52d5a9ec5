//! Device memory without the gaps between its segments: what a page draws as one tape.

use super::allocations::{Allocation, Stretch};

/// The unit of addresses and sizes in every file that an allocator wrote.
const UNIT: u64 = 512;

/// Units between one region and the next: what does not touch in memory does not on the tape.
const APART: u64 = 1;

/// Stretches of the address space, laid one after the other.
#[derive(Debug)]
pub(super) struct Space {
    /// Bytes: the largest power of two up to [`UNIT`] that divides all addresses and sizes.
    pub(super) unit: u64,
    /// First address, the address after the last, and units in those before.
    regions: Vec<(u64, u64, u64)>,
}

impl Space {
    pub(super) fn of(allocations: &[Allocation], stretches: &[Stretch]) -> Self {
        let bits = allocations.iter().fold(UNIT, |bits, one| bits | one.address | one.bytes);
        let bits = stretches.iter().fold(bits, |bits, one| bits | one.address | one.bytes);
        let unit = 1 << bits.trailing_zeros();
        let mut ranges: Vec<(u64, u64)> =
            stretches.iter().map(|one| (one.address, one.end_address())).collect();
        ranges.sort_unstable();
        let mut regions: Vec<(u64, u64, u64)> = Vec::new();
        for (from, to) in ranges {
            match regions.last_mut() {
                Some((_, end, _)) if from <= *end => *end = to.max(*end),
                last => {
                    let before = last.map_or(0, |(start, end, before)| {
                        before.saturating_add((*end - *start) / unit).saturating_add(APART)
                    });
                    regions.push((from, to, before));
                }
            }
        }
        Self { unit, regions }
    }

    /// Where `address` lies on the tape, in units.
    pub(super) fn place(&self, address: u64) -> u64 {
        let after = self.regions.partition_point(|(from, ..)| *from <= address);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        region.map_or(0, |(from, _, before)| before.saturating_add((address - from) / self.unit))
    }

    /// The regions: first address in hexadecimal, and units, with those up to the next.
    pub(super) fn regions(&self) -> Vec<(String, u64)> {
        let told = |(from, to, _): &(u64, u64, u64)| {
            (format!("{from:#x}"), ((to - from) / self.unit).saturating_add(APART))
        };
        self.regions.iter().map(told).collect()
    }
}
