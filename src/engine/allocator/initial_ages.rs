//! The order of age of the memory that an allocator held when a recording began. It decides between free blocks of equal
//! size and is not recorded, so it is guessed.

/// Places in the order of age.
#[derive(Debug, Clone, Default)]
pub(super) struct InitialAges {
    /// The place of each initial registration: a permutation. Later registrations are younger, and their own place.
    pub(super) places: Vec<u32>,
    /// Initial segments by address.
    segments: Vec<SegmentAge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentAge {
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) free_list: u32,
    pub(super) registration: u32,
}

impl InitialAges {
    /// Guesses that the `registrations` so far are in order of age.
    pub(super) fn new(registrations: u32, mut segments: Vec<SegmentAge>) -> Self {
        segments.sort_unstable();
        Self { places: (0..registrations).collect(), segments }
    }

    /// The place of a registration in the order of age.
    #[inline]
    pub(super) fn place(&self, registration: u32) -> u32 {
        self.places.get(registration as usize).copied().unwrap_or(registration)
    }

    pub(super) fn is_guess(&self, registration: u32) -> bool {
        (registration as usize) < self.places.len()
    }

    /// The initial segment around `addr`. It may have been released since.
    pub(super) fn segment_around(&self, addr: u64) -> Option<&SegmentAge> {
        let after = self.segments.partition_point(|segment| segment.addr <= addr);
        self.segments.get(after.checked_sub(1)?)
    }
}
