//! Samples what is live at many positions of a trace; stores each item once, with the samples in its lifetime.

use std::ops::Range;

/// Items with the samples in their lifetimes.
#[derive(Debug)]
pub(super) struct LifetimeSamples<T> {
    /// Number of entries applied at each sample, ascending.
    positions: Vec<usize>,
    /// Number of samples before the entry that is being applied.
    passed: u32,
    /// Items that were live at one sample or more.
    pub(super) sampled: Vec<(T, Range<u32>)>,
}

impl<T> LifetimeSamples<T> {
    pub(super) fn new(positions: Vec<usize>) -> Self {
        Self { positions, passed: 0, sampled: Vec::new() }
    }

    /// Call before applying entry `index`.
    #[inline]
    pub(super) fn advance(&mut self, index: usize) {
        while self.positions.get(self.passed as usize).is_some_and(|position| *position <= index) {
            self.passed += 1;
        }
    }

    /// The first sample of an item that the current entry creates.
    #[inline]
    pub(super) fn next_sample(&self) -> u32 {
        self.passed
    }

    /// The current entry ends an item, whose first sample is `first`.
    #[inline]
    pub(super) fn end_lifetime(&mut self, first: u32, item: impl FnOnce() -> T) {
        if first < self.passed {
            self.sampled.push((item(), first..self.passed));
        }
    }

    /// Call after the last entry.
    pub(super) fn finish(&mut self) {
        self.advance(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_the_samples_in_their_lifetime() {
        let mut samples = LifetimeSamples::new(vec![0, 2, 2, 5]);
        samples.advance(1);
        let first = samples.next_sample();
        samples.end_lifetime(first, || "begins and ends with entry 1");
        samples.advance(3);
        samples.end_lifetime(first, || "from entry 1 to 3");
        let late = samples.next_sample();
        samples.finish();
        samples.end_lifetime(late, || "from entry 3 on");
        samples.end_lifetime(0, || "always");
        assert_eq!(samples.sampled, [("from entry 1 to 3", 1..3), ("from entry 3 on", 3..4), ("always", 0..4)]);
    }
}
