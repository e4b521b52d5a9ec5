//! One device at every size asked for.

use std::sync::OnceLock;

use rayon::prelude::*;
use serde::Serialize;

use super::asked::FitOptions;
use super::checked::{Checked, LEAST_PAIRED, OFF, TOLD};
use super::growth::{GrowingLine, PeakMemory};
use super::largest::{Found, Largest, Search, error};
use super::learned::Learned;
use super::prediction::{SizeReport, is_served, most_held, predicted};
use super::recording::Recording;

use crate::study::DeviceStudy;
use crate::whatif::{COMMON, WhatIf, changed, is_worth_trying, option_change};

/// One device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitDevice {
    /// Device number.
    pub device: u64,
    /// Bytes of its memory; `None` where neither the call nor a failed request says.
    pub capacity_bytes: Option<u64>,
    /// The share of the bytes at the peak of the largest recording that is asked for by the same stacks in another.
    pub paired_ratio: f64,
    /// The same of the bytes that were asked for with a stack: where there is none, bytes alone make a pair.
    pub stacks_paired_ratio: f64,
    /// The same of all bytes that are asked for in that recording: less, where another path of the code was taken.
    pub asked_paired_ratio: f64,
    /// The share of those at the peak that would be fewer at a larger size. There is no such program: the recordings are of
    /// different ones, or of different types of numbers.
    pub shrinking_ratio: f64,
    /// The largest share of the bytes at the peak of a recording that another had freed by then: two programs that ask
    /// for the same and do not keep the same, as with and without gradients.
    pub freed_elsewhere_ratio: f64,
    /// The share of those bytes that each step asks for in another size, as the data are: the largest step is taken.
    pub varying_ratio: f64,
    /// The share of all bytes that are asked for in that recording whose growth is a parabola through three recordings,
    /// which none checks.
    pub guessed_ratio: f64,
    /// The largest size that was recorded.
    pub largest_recorded: u64,
    /// In ascending order.
    pub sizes: Vec<SizeReport>,
    /// The largest that fits under the settings recorded, or those of `--set`; `None` without a capacity, and where
    /// requests that are part of the peak grow in number.
    pub largest: Option<Largest>,
    /// The largest that fits under any setting that was tried, where that is larger.
    pub best: Option<Largest>,
    /// The size at which `growth` is told: the largest that fits, or the largest recorded.
    pub growth_at: u64,
    /// Which lines the memory at the peak is of, those that grow most first.
    pub growth: Vec<GrowingLine>,
    /// What other lines hold at that peak, in bytes.
    pub growth_rest_bytes: u64,
    /// Requests of each recording, in the order of size: where they grow in number, memory at other sizes is not told.
    pub requests: Vec<u64>,
    /// Lines that hold memory at the peak of the largest recording and have no partner: taken to grow as most others
    /// of their bytes do.
    pub unpaired: Vec<GrowingLine>,
    /// Each recording as it is predicted from the others; of three or more.
    pub checked: Vec<Checked>,
}

/// All recordings of one device, what is learned of each worked out once.
pub(super) struct Family<'s, 'a> {
    pub(super) recordings: Vec<Recording<'s, 'a>>,
}

impl FitDevice {
    /// Whether something about the recordings or the answer speaks against it: it is an estimate then.
    pub fn is_doubtful(&self) -> bool {
        self.paired_ratio.min(self.asked_paired_ratio) < 1.0 - TOLD
            || self.shrinking_ratio > TOLD
            || self.freed_elsewhere_ratio > OFF
            || self.varying_ratio > TOLD
            || self.guessed_ratio > TOLD
            || self.far_away().is_some()
            || self.checked.iter().any(Checked::is_off)
    }

    /// The largest size that fits and how many times the largest recorded that is, where it is far away.
    pub(super) fn far_away(&self) -> Option<(u64, u64)> {
        let fits = self.largest.as_ref()?.size?;
        let times = fits / self.largest_recorded.max(1);
        (times >= FAR).then_some((fits, times))
    }
}

/// From so many times the largest size recorded on an answer is an estimate: a recording nearer to it costs little, and
/// the kernels of small sizes are often others.
const FAR: u64 = 8;

impl<'s, 'a> Family<'s, 'a> {
    /// The recording that is nearest to size `n`, but for the one of size `left_out`; one that came to its end
    /// rather than one that ended in a failure, and the larger of two.
    fn nearest(&self, n: u64, left_out: Option<u64>) -> Option<usize> {
        let candidates = self.recordings.iter().enumerate();
        let candidates = candidates.filter(|(_, one)| Some(one.size) != left_out);
        let key = |(_, one): &(usize, &Recording<'_, '_>)| {
            (one.ends_in_failure(), one.size.abs_diff(n), std::cmp::Reverse(one.size))
        };
        candidates.min_by_key(key).map(|(row, _)| row)
    }

    /// What is learned for the recording in `row` from all, but for the one of size `left_out`.
    fn learned(&self, row: usize, left_out: Option<u64>) -> Learned<'_, 's, 'a> {
        let base = &self.recordings[row];
        let is_other =
            |one: &&Recording<'s, 'a>| one.size != base.size && Some(one.size) != left_out;
        let others: Vec<&Recording<'s, 'a>> = self.recordings.iter().filter(is_other).collect();
        Learned::of(base, &others)
    }

    /// The answer.
    ///
    /// # Errors
    /// One sentence, for an option that cannot be.
    pub(super) fn fit(&self, options: &FitOptions<'_>) -> Result<FitDevice, String> {
        let largest_recorded = self.recordings.last().map_or(0, |one| one.size);
        let known: Vec<OnceLock<Learned<'_, 's, 'a>>> =
            self.recordings.iter().map(|_| OnceLock::new()).collect();
        let learned = |n: u64| {
            let row = self.nearest(n, None).unwrap_or(0);
            known[row].get_or_init(|| self.learned(row, None))
        };
        let all = || self.recordings.iter().map(|one| one.device);
        let recorded = all().find_map(DeviceStudy::recorded_capacity);
        let shown = || all().filter_map(DeviceStudy::shown_capacity).max();
        let capacity = options.capacity.or(recorded).or_else(shown);
        let base = learned(largest_recorded);
        let change = asked(base, capacity, options)?;
        let settings = changed(base.base.device, &change).settings;
        let at_recorded = PeakMemory::at(base, base.base.size, &settings);
        if at_recorded.falls() && at_recorded.stacks_paired_ratio(base) >= LEAST_PAIRED {
            return Err(format!(
                "device {}: the memory at the peak is less at the larger size: are the sizes swapped, \
                 or the recordings of different programs?",
                base.base.device.id()
            ));
        }
        let freed_elsewhere = self.recordings.iter().map(|one| {
            let learned = learned(one.size);
            PeakMemory::at(learned, one.size, &settings).freed_elsewhere_ratio(learned)
        });
        let freed_elsewhere_ratio = freed_elsewhere.fold(0.0, f64::max);
        let search = |change: &WhatIf, near: u64| {
            let capacity = change.capacity?;
            let search = Search {
                most_held: &|n| most_held(learned(n), n, change),
                is_served: &|n| is_served(learned(n), n, change),
                capacity,
                multiple: options.multiple,
            };
            Some(search.largest(near))
        };
        // Where requests grow in number, what they keep at another size is not known.
        let grows_in_number = at_recorded.paired_ratio() < 1.0 - TOLD
            && self.recordings.windows(2).any(|two| two[0].requests.len() < two[1].requests.len());
        let found = if grows_in_number { None } else { search(&change, largest_recorded) };
        let largest = found.map(|found| told(found, &change, learned));
        let exceeded = match found {
            Some(Found::Size(size)) => Some(size),
            Some(Found::Nothing) => Some(0),
            _ => None,
        };
        let exceeded = exceeded.filter(|_| options.settings.is_none());
        let best = exceeded
            .and_then(|size| best(base, &change, size, &learned, &search, options.multiple));
        let growth_at = match found {
            Some(Found::Size(size)) => size,
            _ => largest_recorded,
        };
        let mut sizes = self.sizes(found, options);
        sizes.sort_unstable();
        sizes.dedup();
        let is_recorded = |n: u64| self.recordings.iter().any(|one| one.size == n);
        let sizes = sizes
            .into_par_iter()
            .map(|n| {
                let own = is_recorded(n);
                let unsure = WhatIf { capacity: None, ..change.clone() };
                let change = if grows_in_number && !own { &unsure } else { &change };
                predicted(learned(n), n, own, change)
            })
            .collect();
        let at_growth = PeakMemory::at(learned(growth_at), growth_at, &settings);
        let growth = at_growth.growth(learned(growth_at), options.top);
        let told = growth.iter().fold(0u64, |sum, line| sum.saturating_add(line.bytes));
        Ok(FitDevice {
            device: base.base.device.id(),
            capacity_bytes: capacity,
            paired_ratio: at_recorded.paired_ratio(),
            stacks_paired_ratio: at_recorded.stacks_paired_ratio(base),
            asked_paired_ratio: base.asked_paired_ratio(),
            shrinking_ratio: at_recorded.shrinking_ratio(),
            freed_elsewhere_ratio,
            varying_ratio: at_recorded.varying_ratio(base),
            guessed_ratio: base.guessed_ratio(),
            largest_recorded,
            sizes,
            largest,
            best,
            growth_at,
            growth_rest_bytes: at_growth.all().saturating_sub(told),
            growth,
            requests: self.recordings.iter().map(|one| one.requests.len() as u64).collect(),
            unpaired: at_recorded.unpaired(base, options.top),
            checked: self.checked(),
        })
    }

    /// Which sizes to tell of.
    fn sizes(&self, found: Option<Found>, options: &FitOptions<'_>) -> Vec<u64> {
        if !options.at.is_empty() {
            let around = match found {
                Some(Found::Size(size)) => vec![size, size.saturating_add(options.multiple)],
                _ => Vec::new(),
            };
            return [options.at, &around].concat();
        }
        let mut sizes: Vec<u64> = self.recordings.iter().map(|one| one.size).collect();
        let largest = sizes.iter().copied().max().unwrap_or(1);
        match found {
            Some(Found::Size(size)) => {
                sizes.extend([size, size.saturating_add(options.multiple)]);
                let mut double = largest.saturating_mul(2);
                while double < size {
                    sizes.push(double);
                    double = double.saturating_mul(2);
                }
            }
            Some(Found::Nothing) => sizes.push(options.multiple),
            _ => sizes.extend([2, 4, 8].map(|times| largest.saturating_mul(times))),
        }
        sizes
    }

    /// Each recording predicted from the others, where two are left.
    fn checked(&self) -> Vec<Checked> {
        if self.recordings.len() < 3 {
            return Vec::new();
        }
        let own = WhatIf { settings: None, capacity: None, minor: None };
        let check = |one: &Recording<'_, '_>| {
            let row = self.nearest(one.size, Some(one.size))?;
            let learned = self.learned(row, Some(one.size));
            let said = predicted(&learned, one.size, true, &own);
            let peak = one.device.peak();
            Some(Checked {
                size: one.size,
                recorded_allocated_bytes: peak.allocated_bytes,
                recorded_reserved_bytes: peak.reserved_bytes,
                predicted_allocated_bytes: said.peak_allocated_bytes,
                predicted_reserved_bytes: said.peak_reserved_bytes,
                allocated_error_ratio: error(said.peak_allocated_bytes, peak.allocated_bytes),
                reserved_error_ratio: error(said.peak_reserved_bytes, peak.reserved_bytes),
            })
        };
        self.recordings.par_iter().filter_map(check).collect()
    }
}

/// What the replays change: the device, and the settings asked for.
fn asked(
    base: &Learned<'_, '_, '_>,
    capacity: Option<u64>,
    options: &FitOptions<'_>,
) -> Result<WhatIf, String> {
    let device = base.base.device;
    let of = |option| option_change(device.snapshot(), &device.inferred().hypothesis, option);
    let settings = options.settings.map(of).transpose();
    let settings = settings.map_err(|error| format!("--set {error}"))?;
    Ok(WhatIf { settings, capacity, minor: None })
}

/// The settings of the grid under which a larger size than `size` fits, and the largest of those.
fn best<'r, 's: 'r, 'a: 'r>(
    base: &Learned<'_, '_, '_>,
    change: &WhatIf,
    size: u64,
    learned: &(dyn Fn(u64) -> &'r Learned<'r, 's, 'a> + Sync),
    search: &(dyn Fn(&WhatIf, u64) -> Option<Found> + Sync),
    multiple: u64,
) -> Option<Largest> {
    let device = base.base.device;
    let hypothesis = &device.inferred().hypothesis;
    let next = size.saturating_add(multiple);
    let tried = COMMON.par_iter().filter_map(|option| {
        let settings = option_change(device.snapshot(), hypothesis, option).ok()?;
        if !is_worth_trying(&settings.0, device) {
            return None;
        }
        let change =
            WhatIf { settings: Some((settings.0, (*option).to_owned())), ..change.clone() };
        is_served(learned(next), next, &change).then_some(change)
    });
    let better: Vec<WhatIf> = tried.collect();
    let found = better.into_par_iter().filter_map(|change| match search(&change, next)? {
        Found::Size(size) => Some((size, change)),
        _ => None,
    });
    let found: Vec<(u64, WhatIf)> = found.collect();
    // The first of equals: the grid begins with what is simplest.
    let (size, change) = found.into_iter().rev().max_by_key(|(size, _)| *size)?;
    Some(told(Found::Size(size), &change, learned))
}

fn told<'r, 's: 'r, 'a: 's>(
    found: Found,
    change: &WhatIf,
    learned: impl Fn(u64) -> &'r Learned<'r, 's, 'a>,
) -> Largest {
    let settings = change.settings.as_ref().map_or_else(String::new, |(_, text)| text.clone());
    let (size, unreserved_bytes) = match found {
        Found::Nothing => (Some(0), None),
        Found::Everything => (None, None),
        Found::Size(size) => {
            let peak = predicted(learned(size), size, false, change).peak_reserved_bytes;
            (Some(size), change.capacity.map(|capacity| capacity.saturating_sub(peak)))
        }
    };
    Largest { size, settings, unreserved_bytes }
}
