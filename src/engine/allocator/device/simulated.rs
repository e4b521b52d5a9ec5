//! A device without memory: it only keeps account of bytes and addresses.

use super::free_ranges::{FreeRange, FreeRanges};
use super::{DeviceMemory, OutOfMemory, ReplayDevice, Reservation};

use crate::base::units::MIB;

/// The driver's granularity of memory and addresses.
const PAGE: u64 = 2 * MIB;
/// Address of the first segment of device 0. Each device has its own range.
const SEGMENTS: u64 = 0x5000_0000_0000;
/// Address of the first reservation of device 0.
const RESERVATIONS: u64 = 0x3000_0000_0000;
/// The ranges of two devices are this power of two apart.
const DEVICE_SHIFT: u32 = 36;
/// The same for reservations, which are larger than a device.
const RESERVATION_SHIFT: u32 = 42;
/// Size of the range in which [`Placement::Highest`] and [`Placement::Scattered`] place segments.
const SEGMENT_SPAN: u64 = 1 << 40;
/// The same for reservations.
const RESERVATION_SPAN: u64 = 1 << 44;
/// Random addresses to try before falling back to the lowest one.
const MAX_DRAWS: usize = 64;

/// The addresses of new memory. They matter because PyTorch chooses between equal blocks by address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// In the lowest free range that is large enough.
    #[default]
    Lowest,
    /// Just below all used addresses.
    Highest,
    /// At random addresses from this seed.
    Scattered(u64),
}

/// A device of a given capacity.
#[derive(Debug, Clone)]
pub struct SimulatedDevice {
    capacity: u64,
    /// By this process.
    used: u64,
    /// By other processes.
    pub(super) used_elsewhere: u64,
    placement: Placement,
    segments: AddressSpace,
    reservations: AddressSpace,
}

impl SimulatedDevice {
    /// Device number `device` with `capacity` free bytes.
    pub fn new(device: u64, capacity: u64) -> Self {
        let device = device.min(255);
        Self {
            capacity,
            used: 0,
            used_elsewhere: 0,
            placement: Placement::Lowest,
            segments: AddressSpace::new(SEGMENTS + (device << DEVICE_SHIFT), SEGMENT_SPAN),
            reservations: AddressSpace::new(RESERVATIONS + (device << RESERVATION_SHIFT), RESERVATION_SPAN),
        }
    }

    /// The same device with another choice of addresses; default: [`Placement::Lowest`].
    #[must_use]
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    fn add_used(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let pages = whole_pages(size).ok_or(OutOfMemory)?;
        let used = self.used.checked_add(pages).ok_or(OutOfMemory)?;
        if used > self.capacity.saturating_sub(self.used_elsewhere) {
            return Err(OutOfMemory);
        }
        self.used = used;
        Ok(pages)
    }

    fn sub_used(&mut self, size: u64) {
        self.used = self.used.saturating_sub(whole_pages(size).unwrap_or(size));
    }
}

fn whole_pages(size: u64) -> Option<u64> {
    size.max(1).checked_next_multiple_of(PAGE)
}

impl DeviceMemory for SimulatedDevice {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        let pages = self.add_used(size)?;
        self.segments.allocate(pages, &mut self.placement)
    }

    fn free(&mut self, addr: u64, size: u64) {
        self.segments.free(addr, whole_pages(size).unwrap_or(size));
        self.sub_used(size);
    }

    fn reserve(&mut self, size: u64, _granule: u64) -> Result<u64, OutOfMemory> {
        self.reservations.allocate(whole_pages(size).ok_or(OutOfMemory)?, &mut self.placement)
    }

    fn release(&mut self, addr: u64, size: u64) {
        self.reservations.free(addr, whole_pages(size).unwrap_or(size));
    }

    fn map(&mut self, _addr: u64, size: u64) -> Result<(), OutOfMemory> {
        self.add_used(size).map(|_| ())
    }

    fn unmap(&mut self, _addr: u64, size: u64) {
        self.sub_used(size);
    }

    fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.used).saturating_sub(self.used_elsewhere)
    }

    fn total_bytes(&self) -> u64 {
        self.capacity
    }
}

impl ReplayDevice for SimulatedDevice {
    /// Never fails: initial memory may exceed the capacity.
    fn add_initial_memory(&mut self, addr: u64, size: u64, within: Option<Reservation>) {
        self.used = self.used.saturating_add(whole_pages(size).unwrap_or(size));
        match within {
            None => self.segments.mark_used(addr, size),
            Some(reserved) => self.reservations.mark_used(reserved.base, reserved.size),
        }
    }

    fn add_capacity(&mut self, bytes: u64) {
        self.capacity = self.capacity.saturating_add(bytes);
    }
}

/// splitmix64
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = *state;
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The free addresses for segments or reservations.
#[derive(Debug, Clone)]
struct AddressSpace {
    origin: u64,
    span: u64,
    gaps: FreeRanges,
}

impl AddressSpace {
    fn new(origin: u64, span: u64) -> Self {
        let mut space = Self { origin, span, gaps: FreeRanges::default() };
        space.add_gap(origin, u64::MAX);
        space
    }

    fn allocate(&mut self, size: u64, placement: &mut Placement) -> Result<u64, OutOfMemory> {
        let found = match placement {
            Placement::Lowest => None,
            Placement::Highest => self.highest_below_used(size),
            Placement::Scattered(state) => (0..MAX_DRAWS).find_map(|_| {
                let pages = self.span / 4 / PAGE;
                let base = self.origin + draw(state) % pages * PAGE;
                self.gaps.at(base).filter(|gap| gap.end - base >= size).map(|_| base)
            }),
        };
        let base = found.or_else(|| self.gaps.first(size).map(|gap| gap.start)).ok_or(OutOfMemory)?;
        self.gaps.cut(base, base + size, |_, _| true);
        Ok(base)
    }

    /// The address just below all used ones, or the middle of the range if none is used.
    fn highest_below_used(&self, size: u64) -> Option<u64> {
        let FreeRange { start, end, .. } = self.gaps.lowest()?;
        let top = if end == u64::MAX { self.origin + self.span / 2 } else { end };
        (start == self.origin && top - start >= size).then(|| top - size)
    }

    /// Removes a range from the gaps. Parts of it may be used already.
    fn mark_used(&mut self, base: u64, size: u64) {
        let end = base.saturating_add(size);
        while let Some(gap) = self.gaps.at_or_after(base).filter(|gap| base < end && gap.start < end) {
            self.gaps.cut(gap.start.max(base), gap.end.min(end), |_, _| true);
        }
    }

    /// Adds a range to the gaps. Parts of it may be free already.
    fn free(&mut self, base: u64, size: u64) {
        self.mark_used(base, size);
        self.add_gap(base.max(self.origin), base.saturating_add(size));
    }

    fn add_gap(&mut self, start: u64, end: u64) {
        if start < end {
            self.gaps.add(FreeRange { start, end, is_usable: true }, [true; 2]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocates_in_the_lowest_gap() {
        let mut device = SimulatedDevice::new(1, 100 * MIB);
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
    fn freed_gaps_are_merged() {
        let mut device = SimulatedDevice::new(0, 100 * MIB);
        let taken = [4, 6, 8].map(|mib| device.allocate(mib * MIB).unwrap());
        for (addr, mib) in [(taken[0], 4), (taken[2], 8), (taken[1], 6)] {
            device.free(addr, mib * MIB);
        }
        assert_eq!(device.allocate(18 * MIB), Ok(SEGMENTS));
        device.add_initial_memory(SEGMENTS + 20 * MIB, 10 * MIB, None);
        assert_eq!(device.allocate(4 * MIB), Ok(SEGMENTS + 30 * MIB), "the gap is too small");
        assert_eq!(device.allocate(2 * MIB), Ok(SEGMENTS + 18 * MIB));
    }

    #[test]
    fn reservations_use_no_memory() {
        let mut device = SimulatedDevice::new(0, 10 * MIB);
        let base = device.reserve(100 * MIB, 2 * MIB).unwrap();
        assert_eq!(device.reserve(100 * MIB, 2 * MIB), Ok(base + 100 * MIB));
        assert_eq!(device.map(base, 10 * MIB), Ok(()));
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Err(OutOfMemory));
        device.unmap(base, 2 * MIB);
        assert_eq!(device.map(base + 10 * MIB, 2 * MIB), Ok(()));
    }

    #[test]
    fn placement_decides_the_address() {
        let below = &mut SimulatedDevice::new(0, 100 * MIB).with_placement(Placement::Highest);
        let taken = [2, 20, 4].map(|mib| below.allocate(mib * MIB).unwrap());
        assert_eq!(taken.map(|addr| (taken[0] - addr) / MIB), [0, 20, 24]);
        below.free(taken[1], 20 * MIB);
        assert_eq!(below.allocate(2 * MIB), Ok(taken[2] - 2 * MIB), "no gap is filled");
        let [drawn, same_seed, other_seed] = [1, 1, 2].map(|seed| {
            let mut device = SimulatedDevice::new(0, 100 * MIB).with_placement(Placement::Scattered(seed));
            [2, 20, 4].map(|mib| device.allocate(mib * MIB).unwrap())
        });
        assert_eq!(drawn, same_seed);
        assert_ne!(drawn, other_seed);
    }
}
