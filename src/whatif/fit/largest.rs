//! The largest number at which every request is served.

use crate::base::units::ratio;

/// Sizes beyond this are not looked at: nothing grows that far.
const MOST: u64 = 1 << 40;

/// What a search asks.
pub(super) struct Search<'f> {
    /// The most that the program holds at once, at a size.
    pub(super) most_held: &'f dyn Fn(u64) -> u64,
    /// Whether every request is served at a size.
    pub(super) is_served: &'f dyn Fn(u64) -> bool,
    /// Bytes of the device.
    pub(super) capacity: u64,
    /// Only multiples of this.
    pub(super) multiple: u64,
}

/// What a search finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No size is small enough.
    Nothing,
    /// No size is too large.
    Everything,
    /// The largest that fits: the next fails.
    Size(u64),
}

impl Search<'_> {
    /// Looks from `near` on. What the program holds at once is quickly told, and rules out most sizes; the rest are
    /// replayed.
    pub(super) fn largest(&self, near: u64) -> Found {
        let start = (near / self.multiple).max(1);
        let size = |count: u64| count.saturating_mul(self.multiple);
        let can_be = |count: u64| (self.most_held)(size(count)) <= self.capacity;
        let Some(upper) = last(start, MOST / self.multiple, can_be) else { return Found::Nothing };
        if size(upper.saturating_add(1)) > MOST {
            return Found::Everything;
        }
        let is_served = |count: u64| (self.is_served)(size(count));
        // Close below the bound, as a rule.
        match last(upper, upper, is_served) {
            Some(count) => Found::Size(size(count)),
            None => Found::Nothing,
        }
    }
}

/// The last count from 1 to `most` that `holds`, all below it taken to hold; looks from `start` on in strides that
/// double, then halves what is left.
fn last(start: u64, most: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, most.saturating_add(1));
    let mut stride = 1u64;
    if holds(start) {
        low = start;
        while low < most {
            let next = low.saturating_add(stride).min(most);
            if !holds(next) {
                high = next;
                break;
            }
            (low, stride) = (next, stride.saturating_mul(2));
        }
    } else {
        high = start;
        while high > 1 {
            let next = high.saturating_sub(stride).max(1);
            if holds(next) {
                low = next;
                break;
            }
            (high, stride) = (next, stride.saturating_mul(2));
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low > 0).then_some(low)
}

/// By how much `predicted` is off from what was `recorded`, as a part of that.
pub(super) fn error(predicted: u64, recorded: u64) -> f64 {
    let sign = if predicted < recorded { -1.0 } else { 1.0 };
    sign * ratio(predicted.abs_diff(recorded), recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_found_from_anywhere() {
        for limit in [1, 2, 5, 64, 1000, 4095] {
            for start in [1, 3, 64, 999, 4096] {
                assert_eq!(last(start, 4096, |n| n <= limit), Some(limit), "{start}");
            }
        }
        assert_eq!(last(7, 4096, |_| false), None);
        assert_eq!(last(7, 4096, |_| true), Some(4096));
    }

    #[test]
    fn a_bound_and_replays_decide() {
        let search = |multiple| Search {
            most_held: &|n| n * 10,
            is_served: &|n| n * 11 <= 1000,
            capacity: 1000,
            multiple,
        };
        assert_eq!(search(1).largest(4), Found::Size(90));
        assert_eq!(search(8).largest(4), Found::Size(88));
        assert_eq!(search(128).largest(4), Found::Nothing);
    }
}
