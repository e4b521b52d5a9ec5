//! A device that is bookkeeping only.

use std::collections::BTreeMap;

use super::{DeviceMemory, OutOfMemory};
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
    pub fn new(device: u32, capacity: u64) -> Self {
        let device = u64::from(device.min(255));
        Self {
            capacity,
            used: 0,
            segments: Ranges::starting_at(SEGMENTS + (device << DEVICE_SHIFT)),
            reservations: Ranges::starting_at(RESERVATIONS + (device << RESERVATION_SHIFT)),
        }
    }

    /// Counts memory that was there before: a segment, or a part of a reservation (base, size).
    pub fn take_over(&mut self, addr: u64, size: u64, reservation: Option<(u64, u64)>) {
        self.used = self.used.saturating_add(whole_pages(size).unwrap_or(size));
        match reservation {
            None => self.segments.insert(addr, size),
            Some((base, size)) => self.reservations.insert(base, size),
        }
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
        self.segments.give(addr);
        self.give(size);
    }

    fn reserve(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        self.reservations.take(whole_pages(size).ok_or(OutOfMemory)?)
    }

    fn release(&mut self, addr: u64, _size: u64) {
        self.reservations.give(addr);
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

/// Address ranges in use, the gaps between them found by first fit.
#[derive(Debug, Clone)]
struct Ranges {
    origin: u64,
    taken: BTreeMap<u64, u64>,
    /// No gap below this address is large enough for anything.
    full_below: u64,
}

impl Ranges {
    fn starting_at(origin: u64) -> Self {
        Self { origin, taken: BTreeMap::new(), full_below: origin }
    }

    fn take(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let mut at = self.full_below;
        let mut is_packed = true;
        for (&base, &taken) in self.taken.range(self.full_below..) {
            if base.saturating_sub(at) >= size {
                break;
            }
            is_packed &= base <= at;
            at = at.max(base.saturating_add(taken));
            if is_packed {
                self.full_below = at;
            }
        }
        at.checked_add(size).ok_or(OutOfMemory)?;
        self.taken.insert(at, size);
        Ok(at)
    }

    /// Marks a range that was taken before; it may lie anywhere.
    fn insert(&mut self, base: u64, size: u64) {
        self.taken.insert(base, size);
    }

    fn give(&mut self, base: u64) {
        if self.taken.remove(&base).is_some() {
            // A range that began below the origin may have filled the start of what is looked at.
            self.full_below =
                if base < self.origin { self.origin } else { self.full_below.min(base) };
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
    fn reservations_take_no_memory() {
        let mut device = Simulated::new(0, 10 * MIB);
        let base = device.reserve(100 * MIB).unwrap();
        assert_eq!(device.reserve(100 * MIB), Ok(base + 100 * MIB));
        assert_eq!(device.map(base, 10 * MIB), Ok(()));
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Err(OutOfMemory));
        device.unmap(base, 2 * MIB);
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Ok(()));
    }
}
