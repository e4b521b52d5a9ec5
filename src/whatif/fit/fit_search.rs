//! The largest size that fits.

use rayon::prelude::*;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::prediction::{WARN_UNMATCHED_RATIO, approximate_ratio, is_served, peak_live_bytes, predict};
use crate::whatif::{Overrides, Sureness, candidates};

/// The largest size that fits under certain settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// The size, at which no request fails; 0 if none fits, null if every size that was tried fits.
    pub size: Option<u64>,
    /// The settings in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// Headroom: device memory - reserved bytes at the peak of that size; null without a size.
    pub unreserved_bytes: Option<u64>,
    /// How certain it is that the program fits at that size.
    pub certainty: Sureness,
    /// Data is sorted, or kernels pad memory at the peak.
    #[serde(skip)]
    pub(super) is_at_risk: bool,
}

impl Largest {
    /// Headroom, unless it is less than an estimate may be off.
    pub fn headroom(&self) -> Option<u64> {
        self.unreserved_bytes.filter(|_| self.certainty < Sureness::Estimate)
    }
}

/// Most sizes that are replayed on one side of a result.
const MAX_NEIGHBORS: u64 = 32;
/// Most requests of all these replays: a tenth of a second.
const MAX_NEIGHBOR_REQUESTS: u64 = 1_000_000;

/// A search for the largest size of a fitted program.
pub(in crate::whatif) struct FitSearch<'f, 'r, 's, 'a> {
    /// The program fitted for a size.
    pub(in crate::whatif) fitted: &'f (dyn Fn(u64) -> &'r FittedProgram<'r, 's, 'a> + Sync),
    /// Only multiples of this are searched.
    pub(in crate::whatif) multiple: u64,
}

impl FitSearch<'_, '_, '_, '_> {
    /// The largest size that fits under `overrides`, searched from `start_size`; `None` without a capacity.
    pub(in crate::whatif) fn search(&self, overrides: &Overrides, start_size: u64) -> Option<FoundSizes> {
        let search = SizeSearch {
            peak_live_bytes: &|size| peak_live_bytes((self.fitted)(size), size, overrides),
            is_served: &|size| is_served((self.fitted)(size), size, overrides),
            capacity: overrides.capacity?,
            multiple: self.multiple,
            neighbors: self.neighbors(start_size),
        };
        Some(search.search(start_size))
    }

    /// How many sizes to replay on either side of a result, so that together they have at most [`MAX_NEIGHBOR_REQUESTS`].
    fn neighbors(&self, size: u64) -> u64 {
        let requests = (self.fitted)(size).base.requests.len() as u64;
        (MAX_NEIGHBOR_REQUESTS / 2).checked_div(requests).unwrap_or(MAX_NEIGHBORS).clamp(1, MAX_NEIGHBORS)
    }

    /// The largest safe size beyond `size` under settings of the grid.
    pub(super) fn best_settings(&self, overrides: &Overrides, size: u64) -> Option<Largest> {
        let next = size.saturating_add(self.multiple);
        let fitted = (self.fitted)(next);
        let device = fitted.base.device;
        let better = candidates(device).into_par_iter().filter_map(|candidate| {
            let settings = Some((candidate.settings.0, candidate.option));
            let overrides = Overrides { settings, ..overrides.clone() };
            is_served(fitted, next, &overrides).then_some(overrides)
        });
        let better: Vec<Overrides> = better.collect();
        let found = better.into_par_iter().filter_map(|overrides| {
            // The next size fits under these settings, but a smaller one may fail, and then the search ends below it.
            Some((self.search(&overrides, next)?.safe.filter(|found| *found > size)?, overrides))
        });
        let found: Vec<(u64, Overrides)> = found.collect();
        // The first of equals, because the grid starts with the simplest settings.
        let (size, overrides) = found.into_iter().rev().max_by_key(|(size, _)| *size)?;
        Some(self.to_largest(Some(size), &overrides))
    }

    pub(super) fn to_largest(&self, size: Option<u64>, overrides: &Overrides) -> Largest {
        let settings = overrides.settings.as_ref().map_or_else(String::new, |(_, text)| text.clone());
        let (unreserved_bytes, is_at_risk) = match size {
            None | Some(0) => (None, false),
            Some(size) => {
                let fitted = (self.fitted)(size);
                let peak = predict(fitted, size, false, overrides).peak_reserved_bytes;
                let headroom = overrides.capacity.map(|capacity| capacity.saturating_sub(peak));
                let is_at_risk =
                    fitted.has_growing_sorts() || approximate_ratio(fitted, size, overrides) > WARN_UNMATCHED_RATIO;
                (headroom, is_at_risk)
            }
        };
        let certainty = Sureness::Estimate;
        Largest { size, settings, unreserved_bytes, certainty, is_at_risk }
    }
}

/// Larger sizes are not searched.
const MAX_SIZE: u64 = 1 << 40;

pub(in crate::whatif) struct SizeSearch<'f> {
    /// Peak of the live bytes at a size.
    pub(in crate::whatif) peak_live_bytes: &'f dyn Fn(u64) -> u64,
    /// Whether every request is served at a size.
    pub(in crate::whatif) is_served: &'f (dyn Fn(u64) -> bool + Sync),
    /// Device memory in bytes.
    pub(in crate::whatif) capacity: u64,
    /// Only multiples of this are searched.
    pub(in crate::whatif) multiple: u64,
    /// How many sizes on either side of the result are replayed too. Fragmentation is not monotone: a size may fit
    /// although a smaller one fails.
    pub(in crate::whatif) neighbors: u64,
}

/// The result of a search: 0 if not even the smallest size fits, `None` if all sizes up to [`MAX_SIZE`] do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::whatif) struct FoundSizes {
    /// The largest size that fits; the next one fails.
    pub(in crate::whatif) largest: Option<u64>,
    /// The largest size below which no replayed size fails.
    pub(in crate::whatif) safe: Option<u64>,
}

impl FoundSizes {
    fn both(size: Option<u64>) -> Self {
        Self { largest: size, safe: size }
    }
}

impl SizeSearch<'_> {
    /// Searches from `start_size`. The peak of the live bytes is cheap to compute and rules out most sizes; only the
    /// rest are replayed.
    pub(in crate::whatif) fn search(&self, start_size: u64) -> FoundSizes {
        let first_guess = (start_size / self.multiple).max(1);
        let multiple = self.multiple;
        let size = |count: u64| count.saturating_mul(multiple);
        let may_fit = |count: u64| (self.peak_live_bytes)(size(count)) <= self.capacity;
        let Some(upper_bound) = find_last(first_guess, MAX_SIZE / self.multiple, may_fit) else {
            return FoundSizes::both(Some(0));
        };
        if size(upper_bound.saturating_add(1)) > MAX_SIZE {
            return FoundSizes::both(None);
        }
        let is_size_served = self.is_served;
        let is_served = |count: u64| is_size_served(size(count));
        // The result is usually just below the bound.
        let Some(found) = find_last(upper_bound, upper_bound, is_served) else {
            return FoundSizes::both(Some(0));
        };
        let above = found + 1..=upper_bound.min(found.saturating_add(self.neighbors));
        let below = found.saturating_sub(self.neighbors).max(1)..found;
        let largest = above.into_par_iter().filter(|count| is_served(*count)).max().unwrap_or(found);
        let failing = below.into_par_iter().filter(|count| !is_served(*count)).min();
        let safe = failing.map_or(found, |failing| failing - 1);
        FoundSizes { largest: Some(size(largest)), safe: Some(size(safe)) }
    }
}

/// The last count from 1 to `max` that `holds`, assuming that all counts below it hold too. Searches from `first_guess`
/// in strides that double, then bisects.
fn find_last(first_guess: u64, max: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, max.saturating_add(1));
    let mut stride = 1u64;
    if holds(first_guess) {
        low = first_guess;
        while low < max {
            let next = low.saturating_add(stride).min(max);
            if !holds(next) {
                high = next;
                break;
            }
            (low, stride) = (next, stride.saturating_mul(2));
        }
    } else {
        high = first_guess;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_is_found_from_anywhere() {
        for limit in [1, 2, 5, 64, 1000, 4095] {
            for first_guess in [1, 3, 64, 999, 4096] {
                assert_eq!(find_last(first_guess, 4096, |n| n <= limit), Some(limit), "{first_guess}");
            }
        }
        assert_eq!(find_last(7, 4096, |_| false), None);
        assert_eq!(find_last(7, 4096, |_| true), Some(4096));
    }

    fn search(multiple: u64, is_served: &(dyn Fn(u64) -> bool + Sync)) -> FoundSizes {
        SizeSearch { peak_live_bytes: &|n| n * 10, is_served, capacity: 1000, multiple, neighbors: 8 }.search(4)
    }

    #[test]
    fn a_bound_and_replays_decide() {
        let search = |multiple| search(multiple, &|n| n * 11 <= 1000);
        assert_eq!(search(1), FoundSizes::both(Some(90)));
        assert_eq!(search(8), FoundSizes::both(Some(88)));
        assert_eq!(search(128), FoundSizes::both(Some(0)));
    }

    #[test]
    fn sizes_beside_the_result_are_tried() {
        let found = |fails: &'static [u64]| search(1, &|n| n <= 95 && !fails.contains(&n));
        let sizes = |safe, largest| FoundSizes { largest: Some(largest), safe: Some(safe) };
        assert_eq!(found(&[]), sizes(95, 95));
        // The search finds 95 at once; 90 to 92 lie below it.
        assert_eq!(found(&[90, 92]), sizes(89, 95));
        // It steps over 95 and ends at 89.
        assert_eq!(search(1, &|n| n < 90 || n == 95), sizes(89, 95));
    }
}
