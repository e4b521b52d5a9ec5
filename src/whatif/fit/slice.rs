//! The largest first number of the size where the second is fixed; of sizes of one number, the largest size.

use std::collections::BTreeSet;

use rayon::prelude::*;
use serde::Serialize;

use super::largest::{Found, Search};
use super::learned::Learned;
use super::prediction::{SizeReport, is_served, most_held, predicted};
use super::size::Size;
use crate::whatif::{COMMON_SETTINGS, Overrides, is_worth_trying, apply_option};

/// A size, and the settings under which it is the largest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Largest {
    /// The largest size at which no request fails, its first number; `None` where every size looked at fits.
    pub size: Option<u64>,
    /// Its second number, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<u64>,
    /// In the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// What of the device is not reserved at the peak of that size; `None` without a size.
    pub unreserved_bytes: Option<u64>,
}

/// The answer at one second number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LargestAt {
    /// The second number; `None` of sizes of one number.
    pub second: Option<u64>,
    /// As [`super::FitDevice::largest`].
    pub largest: Option<Largest>,
    /// As [`super::FitDevice::best`].
    pub best: Option<Largest>,
}

/// Peaks by the first number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitCurve {
    /// The second number; `None` of sizes of one number.
    pub second: Option<u64>,
    /// In the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// In ascending order.
    pub sizes: Vec<SizeReport>,
}

impl Largest {
    /// The whole size, if there is a largest.
    pub fn at(&self) -> Option<Size> {
        self.size.map(|first| Size { first, second: self.second })
    }
}

/// Sizes of one second number.
pub(super) struct Slice<'f, 'r, 's, 'a> {
    /// What is known at a size.
    pub(super) learned: &'f (dyn Fn(Size) -> &'r Learned<'r, 's, 'a> + Sync),
    pub(super) second: Option<u64>,
    /// Only multiples of this.
    pub(super) multiple: u64,
}

impl Slice<'_, '_, '_, '_> {
    pub(super) fn at(&self, first: u64) -> Size {
        Size { first, second: self.second }
    }

    /// The largest that fits under `change`, looked for from `near` on; `None` without a capacity.
    pub(super) fn search(&self, overrides: &Overrides, near: u64) -> Option<Found> {
        let search = Search {
            most_held: &|n| most_held((self.learned)(self.at(n)), self.at(n), overrides),
            is_served: &|n| is_served((self.learned)(self.at(n)), self.at(n), overrides),
            capacity: overrides.capacity?,
            multiple: self.multiple,
        };
        Some(search.largest(near))
    }

    /// The settings of the grid under which a larger size than `size` fits, and the largest of those.
    pub(super) fn best(&self, overrides: &Overrides, size: u64) -> Option<Largest> {
        let next = size.saturating_add(self.multiple);
        let learned = (self.learned)(self.at(next));
        let device = learned.base.device;
        let hypothesis = &device.inferred().hypothesis;
        let tried = COMMON_SETTINGS.par_iter().filter_map(|option| {
            let settings = apply_option(device.snapshot(), hypothesis, option).ok()?;
            if !is_worth_trying(&settings.0, device) {
                return None;
            }
            let overrides =
                Overrides { settings: Some((settings.0, (*option).to_owned())), ..overrides.clone() };
            is_served(learned, self.at(next), &overrides).then_some(overrides)
        });
        let better: Vec<Overrides> = tried.collect();
        let found =
            better.into_par_iter().filter_map(|overrides| match self.search(&overrides, next)? {
                // Where a larger one fits it is still not all that fit below it.
                Found::Size(found) if found > size => Some((found, overrides)),
                _ => None,
            });
        let found: Vec<(u64, Overrides)> = found.collect();
        // The first of equals: the grid begins with what is simplest.
        let (size, overrides) = found.into_iter().rev().max_by_key(|(size, _)| *size)?;
        Some(self.told(Found::Size(size), &overrides))
    }

    /// Peaks under `change` at `firsts`; those in `recorded` are.
    pub(super) fn curve(
        &self,
        overrides: &Overrides,
        firsts: &BTreeSet<u64>,
        recorded: &[Size],
    ) -> FitCurve {
        let firsts: Vec<u64> = firsts.iter().copied().collect();
        let of = |first: u64| {
            let at = self.at(first);
            predicted((self.learned)(at), at, recorded.contains(&at), overrides)
        };
        let settings = overrides.settings.as_ref().map_or_else(String::new, |(_, text)| text.clone());
        let sizes = firsts.into_par_iter().map(of).collect();
        FitCurve { second: self.second, settings, sizes }
    }

    pub(super) fn told(&self, found: Found, overrides: &Overrides) -> Largest {
        let settings = overrides.settings.as_ref().map_or_else(String::new, |(_, text)| text.clone());
        let (size, unreserved_bytes) = match found {
            Found::Nothing => (Some(0), None),
            Found::Everything => (None, None),
            Found::Size(size) => {
                let at = self.at(size);
                let peak = predicted((self.learned)(at), at, false, overrides).peak_reserved_bytes;
                (Some(size), overrides.capacity.map(|capacity| capacity.saturating_sub(peak)))
            }
        };
        Largest { size, second: self.second, settings, unreserved_bytes }
    }
}
