//! The largest size that fits.

use rayon::prelude::*;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::prediction::{WARN_UNMATCHED_RATIO, approximate_ratio, is_served, peak_live_bytes, predict};
use super::size_search::{FoundSizes, SizeSearch};
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

/// The answers of one device.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) largest: Option<Largest>,
    pub(super) largest_safe: Option<Largest>,
    pub(super) best: Option<Largest>,
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
