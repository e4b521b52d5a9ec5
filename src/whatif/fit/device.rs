//! One device at every size asked for.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use rayon::prelude::*;
use serde::Serialize;

use super::asked::FitOptions;
use super::checked::{Checked, LEAST_PAIRED, OFF, TOLD};
use super::growth::{GrowingLine, PeakMemory};
use super::largest::{Found, error};
use super::learned::Learned;
use super::prediction::{FailedAt, SizeReport, predicted};
use super::recording::Recording;
use super::size::{Size, lacking};
use super::slice::{FitCurve, Largest, LargestAt, Slice};

use crate::study::DeviceStudy;
use crate::whatif::{Overrides, hypothesis_with, apply_option};

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
    /// The share of all bytes that are asked for in that recording that grow along a bend, or all of them in no exact
    /// proportion, of which too few sizes were recorded to tell it from another.
    pub guessed_ratio: f64,
    /// The largest size that was recorded, its first number.
    pub largest_recorded: u64,
    /// The largest second number, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_recorded_second: Option<u64>,
    /// In ascending order; by the second number first.
    pub sizes: Vec<SizeReport>,
    /// Peaks by the first number, if asked for: of each second under the settings recorded, or those of `--set`, and
    /// under those of `best`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<FitCurve>,
    /// The largest that fits under the settings recorded, or those of `--set`; `None` without a capacity, and where
    /// requests that are part of the peak grow in number.
    pub largest: Option<Largest>,
    /// The largest that fits under any setting that was tried, where that is larger.
    pub best: Option<Largest>,
    /// Of sizes of two numbers, the same for each second number that was recorded or asked for. `largest` and `best` are
    /// of the largest of those asked for, or else recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_second: Vec<LargestAt>,
    /// The size at which `growth` is told: the largest that fits, or the largest recorded.
    pub growth_at: u64,
    /// Its second number, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_at_second: Option<u64>,
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
    /// Whether the recordings themselves are remarked upon: they end in a failure, or are not alike.
    #[serde(skip)]
    pub(super) is_remarked: bool,
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
            || self.is_remarked
            || self.far_away().is_some()
            || self.checked.iter().any(Checked::is_off)
    }

    /// The largest recorded.
    pub(super) fn recorded(&self) -> Size {
        Size { first: self.largest_recorded, second: self.largest_recorded_second }
    }

    /// The largest size that fits, or of which a peak is told, and how many times the largest recorded that is, where it
    /// is far away.
    pub(super) fn far_away(&self) -> Option<(Size, u128)> {
        let others = self.by_second.iter().filter_map(|of| of.largest.as_ref());
        let fits = self.largest.iter().chain(others).filter_map(Largest::at);
        let fits_or_told = self.sizes.iter().filter(|row| row.failed.is_none()).map(|row| row.size);
        let farthest = fits.chain(fits_or_told).max_by_key(|size| size.extent())?;
        let times = farthest.extent() / self.recorded().extent().max(1);
        (times >= FAR).then_some((farthest, times))
    }

    /// The next size with the same second number that is known to fail, and what does.
    pub fn failing_beyond(&self, fits: Size) -> Option<(Size, &FailedAt)> {
        let rows = self.sizes.iter().filter(|row| row.size.second == fits.second);
        let mut rows = rows.filter(|row| row.size.first > fits.first);
        rows.find_map(|row| Some((row.size, row.failed.as_ref()?)))
    }

    /// Where `growth` is told.
    pub fn growth_size(&self) -> Size {
        Size { first: self.growth_at, second: self.growth_at_second }
    }
}

/// From so many times the largest size recorded on an answer is an estimate: a recording nearer to it costs little, and
/// the kernels of small sizes are often others.
const FAR: u128 = 8;

impl<'s, 'a> Family<'s, 'a> {
    /// The recording that is nearest to size `n`, but for the one of size `left_out`; one that came to its end
    /// rather than one that ended in a failure, and the larger of two.
    fn nearest(&self, n: Size, left_out: Option<Size>) -> Option<usize> {
        let candidates = self.recordings.iter().enumerate();
        let candidates = candidates.filter(|(_, one)| Some(one.size) != left_out);
        let key = |(_, one): &(usize, &Recording<'_, '_>)| {
            let [away, second_away] =
                [0, 1].map(|of| one.size.numbers()[of].abs_diff(n.numbers()[of]));
            (one.ends_in_failure(), second_away, away, Reverse(one.size))
        };
        candidates.min_by_key(key).map(|(row, _)| row)
    }

    /// What is learned for the recording in `row` from all, but for the one of size `left_out`.
    fn learned(&self, row: usize, left_out: Option<Size>) -> Learned<'_, 's, 'a> {
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
        let known: Vec<OnceLock<Learned<'_, 's, 'a>>> =
            self.recordings.iter().map(|_| OnceLock::new()).collect();
        let learned = |n: Size| {
            let row = self.nearest(n, None).unwrap_or(0);
            known[row].get_or_init(|| self.learned(row, None))
        };
        let all = || self.recordings.iter().map(|one| one.device);
        let recorded = all().find_map(DeviceStudy::recorded_capacity);
        let shown = || all().filter_map(DeviceStudy::inferred_capacity).max();
        let capacity = options.capacity.or(recorded).or_else(shown);
        let largest_recorded = self.largest_recorded();
        let base = learned(largest_recorded);
        let overrides = asked(base, capacity, options)?;
        let settings = hypothesis_with(base.base.device, &overrides).settings;
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
        // Where requests grow in number, what they keep at another size is not known.
        let grows_in_number = at_recorded.paired_ratio() < 1.0 - TOLD
            && self.recordings.windows(2).any(|two| two[0].requests.len() < two[1].requests.len());
        let slices: Vec<(Slice<'_, '_, 's, 'a>, Option<Found>)> = self
            .seconds(options)
            .into_iter()
            .map(|second| {
                let slice = Slice { learned: &learned, second, multiple: options.multiple };
                let found = if grows_in_number {
                    None
                } else {
                    slice.search(&overrides, largest_recorded.first)
                };
                (slice, found)
            })
            .collect();
        let mut by_second: Vec<LargestAt> = slices
            .iter()
            .map(|(slice, found)| LargestAt {
                second: slice.second,
                largest: found.map(|found| slice.told(found, &overrides)),
                best: match found {
                    _ if options.settings.is_some() => None,
                    Some(Found::Size(size)) => slice.best(&overrides, *size),
                    Some(Found::Nothing) => slice.best(&overrides, 0),
                    _ => None,
                },
            })
            .collect();
        let answered = options.at_second.iter().max().copied().or(largest_recorded.second);
        let answer = by_second.iter().find(|of| of.second == answered).cloned();
        let (largest, best) = answer.map_or((None, None), |of| (of.largest, of.best));
        let fits = largest.as_ref().and_then(Largest::at).filter(|size| size.first > 0);
        let growth_at = fits.unwrap_or(Size { second: answered, ..largest_recorded });
        let curves = match options.curve {
            0 => Vec::new(),
            points => self.curves(&slices, &by_second, &overrides, points, base),
        };
        by_second.retain(|of| of.second.is_some());
        let is_recorded = |n: Size| self.recordings.iter().any(|one| one.size == n);
        let sizes = self
            .sizes(&slices, options)
            .into_par_iter()
            .map(|n| {
                let own = is_recorded(n);
                let unsure = Overrides { capacity: None, ..overrides.clone() };
                let overrides = if grows_in_number && !own { &unsure } else { &overrides };
                predicted(learned(n), n, own, overrides)
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
            largest_recorded: largest_recorded.first,
            largest_recorded_second: largest_recorded.second,
            sizes,
            curves,
            largest,
            best,
            by_second,
            growth_at: growth_at.first,
            growth_at_second: growth_at.second,
            growth_rest_bytes: at_growth.all().saturating_sub(told),
            growth,
            requests: self.recordings.iter().map(|one| one.requests.len() as u64).collect(),
            unpaired: at_recorded.unpaired(base, options.top),
            checked: self.checked(),
            is_remarked: false,
        })
    }

    /// Peaks by the first number, at `points` sizes or more, for each slice; with its best settings too.
    fn curves(
        &self,
        slices: &[(Slice<'_, '_, 's, 'a>, Option<Found>)],
        answers: &[LargestAt],
        overrides: &Overrides,
        points: u64,
        base: &Learned<'_, '_, '_>,
    ) -> Vec<FitCurve> {
        let device = base.base.device;
        let recorded: Vec<Size> = self.recordings.iter().map(|one| one.size).collect();
        let mut curves = Vec::new();
        for ((slice, found), answer) in slices.iter().zip(answers) {
            let mut firsts: BTreeSet<u64> = recorded.iter().map(|size| size.first).collect();
            let fits = |of: &Option<Largest>| of.as_ref().and_then(|of| of.size).filter(|n| *n > 0);
            for size in [fits(&answer.largest), fits(&answer.best)].into_iter().flatten() {
                firsts.extend([size, size.saturating_add(1)]);
            }
            let (low, high) = (firsts.first().copied(), firsts.last().copied());
            let (low, mut high) = (low.unwrap_or(1), high.unwrap_or(1));
            if !matches!(found, Some(Found::Size(_))) && fits(&answer.best).is_none() {
                high = high.saturating_mul(4);
            }
            // A little beyond what fits.
            high = high.saturating_add(high / 8);
            let step = ((high - low) / points).max(1);
            firsts.extend((0..=(high - low) / step).map(|n| low + n * step));
            curves.push(slice.curve(overrides, &firsts, &recorded));
            let settings = answer.best.as_ref().and_then(|best| {
                let hypothesis = &device.inferred().hypothesis;
                let (settings, _) =
                    apply_option(device.snapshot(), hypothesis, &best.settings).ok()?;
                Some((settings, best.settings.clone()))
            });
            if settings.is_some() {
                curves.push(slice.curve(&Overrides { settings, ..overrides.clone() }, &firsts, &[]));
            }
        }
        curves
    }

    /// The largest of each number that was recorded.
    fn largest_recorded(&self) -> Size {
        let sizes = || self.recordings.iter().map(|one| one.size);
        Size {
            first: sizes().map(|size| size.first).max().unwrap_or(1),
            second: sizes().filter_map(|size| size.second).max(),
        }
    }

    /// The second numbers, of which the largest first is told; none of sizes of one number.
    fn seconds(&self, options: &FitOptions<'_>) -> BTreeSet<Option<u64>> {
        let recorded = self.recordings.iter().map(|one| one.size.second);
        recorded.chain(options.at_second.iter().copied().map(Some)).collect()
    }

    /// Which sizes to tell of.
    fn sizes(
        &self,
        slices: &[(Slice<'_, '_, 's, 'a>, Option<Found>)],
        options: &FitOptions<'_>,
    ) -> Vec<Size> {
        let multiple = options.multiple;
        let around = |found: &Option<Found>| match found {
            Some(Found::Size(size)) => vec![*size, size.saturating_add(multiple)],
            _ => Vec::new(),
        };
        let mut sizes = options.at.to_vec();
        if sizes.is_empty() && options.at_second.is_empty() {
            let mut firsts: BTreeSet<u64> =
                self.recordings.iter().map(|one| one.size.first).collect();
            let largest = self.largest_recorded().first;
            for (_, found) in slices {
                firsts.extend(around(found));
                match found {
                    Some(Found::Size(size)) => {
                        let mut double = largest.saturating_mul(2);
                        while double < *size {
                            firsts.insert(double);
                            double = double.saturating_mul(2);
                        }
                    }
                    Some(Found::Nothing) => _ = firsts.insert(multiple),
                    _ => firsts.extend([2, 4].map(|times| largest.saturating_mul(times))),
                }
            }
            let of = |(slice, _): &(Slice<'_, '_, 's, 'a>, _)| {
                firsts.iter().map(|first| slice.at(*first)).collect::<Vec<_>>()
            };
            sizes = slices.iter().flat_map(of).collect();
        } else {
            for (slice, found) in slices {
                sizes.extend(around(found).into_iter().map(|first| slice.at(first)));
            }
        }
        sizes.sort_unstable_by_key(|size| (size.second, size.first));
        sizes.dedup();
        sizes
    }

    /// Each recording predicted from the others, where enough are left.
    fn checked(&self) -> Vec<Checked> {
        let own = Overrides { settings: None, capacity: None, minor: None };
        let check = |one: &Recording<'_, '_>| {
            let others = self.recordings.iter().map(|other| other.size);
            let others: Vec<Size> = others.filter(|size| *size != one.size).collect();
            if !lacking(&others).is_empty() {
                return None;
            }
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
) -> Result<Overrides, String> {
    let device = base.base.device;
    let of = |option| apply_option(device.snapshot(), &device.inferred().hypothesis, option);
    let settings = options.settings.map(of).transpose();
    let settings = settings.map_err(|error| format!("--set {error}"))?;
    Ok(Overrides { settings, capacity, minor: None })
}
