//! What was there at many moments of a trace, each thing kept once with the moments that it saw.

use std::ops::Range;

/// Things and the moments that each saw, by the moments' numbers.
#[derive(Debug)]
pub(super) struct Samples<T> {
    /// How many entries have been applied at each moment, in rising order.
    moments: Vec<usize>,
    /// How many moments lie before the entry that is being applied.
    passed: u32,
    /// What saw at least one of them.
    pub(super) seen: Vec<(T, Range<u32>)>,
}

impl<T> Samples<T> {
    /// Of these moments; nothing is seen yet.
    pub(super) fn at(moments: Vec<usize>) -> Self {
        Self { moments, passed: 0, seen: Vec::new() }
    }

    /// Entry `index` is about to be applied.
    #[inline]
    pub(super) fn pass(&mut self, index: usize) {
        while self.moments.get(self.passed as usize).is_some_and(|moment| *moment <= index) {
            self.passed += 1;
        }
    }

    /// The first moment that what begins with this entry sees.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        self.passed
    }

    /// `thing`, which sees moments from `first` on, is gone with this entry.
    #[inline]
    pub(super) fn gone(&mut self, first: u32, thing: impl FnOnce() -> T) {
        if first < self.passed {
            self.seen.push((thing(), first..self.passed));
        }
    }

    /// There are no more entries.
    pub(super) fn close(&mut self) {
        self.pass(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_sees_the_moment() {
        let mut samples = Samples::at(vec![0, 2, 2, 5]);
        samples.pass(1);
        let first = samples.next();
        samples.gone(first, || "begins and ends with entry 1");
        samples.pass(3);
        samples.gone(first, || "from entry 1 to 3");
        let late = samples.next();
        samples.close();
        samples.gone(late, || "from entry 3 on");
        samples.gone(0, || "always");
        assert_eq!(
            samples.seen,
            [("from entry 1 to 3", 1..3), ("from entry 3 on", 3..4), ("always", 0..4)]
        );
    }
}
