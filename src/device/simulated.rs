//! A device that is bookkeeping only.

use std::collections::BTreeMap;

use super::{DeviceMemory, OutOfMemory, ReplayDevice, Reservation};
use crate::units::MIB;

/// Memory and addresses are handed out in multiples of this, as the driver does.
const PAGE: u64 = 2 * MIB;
/// Where the segments of device 0 begin; each device has a range of its own.
const SEGMENTS: u64 = 0x5000_0000_0000;
/// Where reservations begin.
const RESERVATIONS: u64 = 0x3000_0000_0000;
/// Addresses between the ranges of two devices, as a power of two.
const DEVICE_SHIFT: u32 = 36;
/// The same for reservations, which are larger than the device.
const RESERVATION_SHIFT: u32 = 42;

/// A device of `capacity` bytes, which hands out the lowest free range that is large enough.
#[derive(Debug, Clone)]
pub struct Simulated {
    capacity: u64,
    used: u64,
    segments: Ranges,
    reservations: Ranges,
}

impl Simulated {
    /// Device number `device` with `capacity` bytes, none of them in use.
    pub fn new(device: u64, capacity: u64) -> Self {
        let device = device.min(255);
        Self {
            capacity,
            used: 0,
            segments: Ranges::starting_at(SEGMENTS + (device << DEVICE_SHIFT)),
            reservations: Ranges::starting_at(RESERVATIONS + (device << RESERVATION_SHIFT)),
        }
    }

    /// `bytes` of it belong to somebody else.
    pub fn lend(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    fn take(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let pages = whole_pages(size).ok_or(OutOfMemory)?;
        let used = self.used.checked_add(pages).ok_or(OutOfMemory)?;
        if used > self.capacity {
            return Err(OutOfMemory);
        }
        self.used = used;
        Ok(pages)
    }

    fn give(&mut self, size: u64) {
        self.used = self.used.saturating_sub(whole_pages(size).unwrap_or(size));
    }
}

fn whole_pages(size: u64) -> Option<u64> {
    size.max(1).checked_next_multiple_of(PAGE)
}

impl DeviceMemory for Simulated {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let pages = self.take(size)?;
        self.segments.take(pages)
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.segments.give(addr, whole_pages(size).unwrap_or(size));
        self.give(size);
    }

    fn reserve(&mut self, size: u64, _granule: u64) -> Result<u64, OutOfMemory> {
        self.reservations.take(whole_pages(size).ok_or(OutOfMemory)?)
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.reservations.give(addr, whole_pages(size).unwrap_or(size));
    }

    fn map(&mut self, _addr: u64, size: u64) -> Result<(), OutOfMemory> {
        self.take(size).map(|_| ())
    }

    fn unmap(&mut self, _addr: u64, size: u64) {
        self.give(size);
    }

    fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    fn total_bytes(&self) -> u64 {
        self.capacity
    }
}

impl ReplayDevice for Simulated {
    /// Whatever was held is there, on a device of any capacity.
    fn take_over(&mut self, addr: u64, size: u64, within: Option<Reservation>) {
        self.used = self.used.saturating_add(whole_pages(size).unwrap_or(size));
        match within {
            None => self.segments.insert(addr, size),
            Some(reserved) => self.reservations.insert(reserved.base, reserved.size),
        }
    }

    fn enlarge(&mut self, bytes: u64) {
        self.capacity = self.capacity.saturating_add(bytes);
    }
}

/// Addresses that are free, found by first fit.
#[derive(Debug, Clone)]
struct Ranges {
    origin: u64,
    /// The gaps by where they begin, with their ends; no two adjoin.
    gaps: BTreeMap<u64, u64>,
}

impl Ranges {
    fn starting_at(origin: u64) -> Self {
        Self { origin, gaps: BTreeMap::from([(origin, u64::MAX)]) }
    }

    fn take(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let large_enough = |(base, end): &(&u64, &u64)| *end - *base >= size;
        let (&base, &end) = self.gaps.iter().find(large_enough).ok_or(OutOfMemory)?;
        self.gaps.remove(&base);
        self.add(base + size, end);
        Ok(base)
    }

    /// Takes a range that was taken before; it may lie anywhere.
    fn insert(&mut self, base: u64, size: u64) {
        let to = base.saturating_add(size);
        while let Some((&from, &end)) = self.gaps.range(..to).next_back()
            && end > base
        {
            self.gaps.remove(&from);
            self.add(to, end);
            self.add(from, base);
        }
    }

    fn give(&mut self, base: u64, size: u64) {
        let (mut from, mut to) = (base.max(self.origin), base.saturating_add(size));
        while let Some((&gap, &end)) = self.gaps.range(..=to).next_back()
            && end >= from
        {
            self.gaps.remove(&gap);
            (from, to) = (from.min(gap), to.max(end));
        }
        self.add(from, to);
    }

    /// A gap, unless it is empty.
    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.gaps.insert(from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_gap_is_taken() {
        let mut device = Simulated::new(1, 100 * MIB);
        let base = SEGMENTS + (1 << DEVICE_SHIFT);
        let first = device.allocate(2 * MIB).unwrap();
        let second = device.allocate(20 * MIB).unwrap();
        assert_eq!((first, second), (base, base + 2 * MIB));
        device.free(first, 2 * MIB);
        assert_eq!(device.allocate(4 * MIB), Ok(base + 22 * MIB), "the gap is too small");
        assert_eq!(device.allocate(MIB), Ok(base), "a page is the least");
        assert_eq!(device.free_bytes(), (100 - 26) * MIB);
        assert_eq!(device.allocate(75 * MIB), Err(OutOfMemory));
    }

    #[test]
    fn gaps_join_again() {
        let mut device = Simulated::new(0, 100 * MIB);
        let taken = [4, 6, 8].map(|mib| device.allocate(mib * MIB).unwrap());
        for (addr, mib) in [(taken[0], 4), (taken[2], 8), (taken[1], 6)] {
            device.free(addr, mib * MIB);
        }
        assert_eq!(device.allocate(18 * MIB), Ok(SEGMENTS));
        device.take_over(SEGMENTS + 20 * MIB, 10 * MIB, None);
        assert_eq!(device.allocate(4 * MIB), Ok(SEGMENTS + 30 * MIB), "the gap is too small");
        assert_eq!(device.allocate(2 * MIB), Ok(SEGMENTS + 18 * MIB));
    }

    #[test]
    fn reservations_take_no_memory() {
        let mut device = Simulated::new(0, 10 * MIB);
        let base = device.reserve(100 * MIB, 2 * MIB).unwrap();
        assert_eq!(device.reserve(100 * MIB, 2 * MIB), Ok(base + 100 * MIB));
        assert_eq!(device.map(base, 10 * MIB), Ok(()));
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Err(OutOfMemory));
        device.unmap(base, 2 * MIB);
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Ok(()));
    }
}
