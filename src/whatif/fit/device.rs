//! The fit of one device.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use rayon::prelude::*;
use serde::Serialize;

use super::certainty::FitCertainty;
use super::data_range::DataRange;
use super::device_recordings::DeviceRecordings;
use super::fitted_program::FittedProgram;
use super::fitted_sizes::FittedSizes;
use super::growth::{GrowingLine, PeakMemory};
use super::input::SizedRecording;
use super::leave_one_out::{LeaveOneOutCheck, MIN_PAIRED_RATIO, WARN_ERROR_RATIO, WARN_UNMATCHED_RATIO};
use super::options::FitOptions;
use super::prediction::SizeReport;
use super::repetition::{RepeatedOperations, Repetitions};
use super::size::{Size, missing_sizes};
use super::size_search::{FoundSizes, LargestSize};
use super::slice::{Largest, LargestAt, SizeSlice};
use super::steps::Steps;
use super::thresholds::{SortLine, ThresholdLine, sort_lines, threshold_lines};

use crate::study::DeviceStudy;
use crate::whatif::{Overrides, apply_option, hypothesis_with};

/// Predictions for one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitDevice {
    /// Device index.
    pub device: u64,
    /// Device memory in bytes; null if neither an option nor a recording shows it.
    pub capacity_bytes: Option<u64>,
    /// Share of the bytes at the peak of the largest recording that the same stacks request in another recording.
    pub paired_ratio: f64,
    /// The same share, among bytes requested with a stack. Requests without a stack are paired by their bytes alone.
    pub stacks_paired_ratio: f64,
    /// The same share of all bytes that the largest recording requests; lower if the code takes another path there.
    pub asked_paired_ratio: f64,
    /// Share of the bytes at the peak that would shrink at a larger size. Not 0 means that the recordings are of
    /// different programs or dtypes.
    pub shrinking_ratio: f64,
    /// Largest share of the bytes at the peak of a recording that another recording has already freed at that point. A
    /// high share means that the programs keep different blocks, as with and without gradients.
    pub freed_elsewhere_ratio: f64,
    /// Share of the bytes at the peak whose requests change their size from step to step; the largest step counts.
    pub varying_ratio: f64,
    /// Share of all requested bytes of the largest recording whose growth is a guess, because too few sizes are
    /// recorded.
    pub guessed_ratio: f64,
    /// The largest recorded first number.
    pub largest_recorded: u64,
    /// The largest recorded second number; absent for sizes of one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_recorded_second: Option<u64>,
    /// Predictions in ascending order of the second number, then of the first. Those of `--at`, else the recorded
    /// sizes, and those around the largest that fits.
    pub sizes: Vec<SizeReport>,
    /// The largest size that fits under the recorded settings or those of `--set`; null without a capacity, if the number
    /// of unpaired requests at the peak grows with the size, and if the data decides more than the recorded steps show.
    pub largest: Option<Largest>,
    /// The largest size below which no size that was replayed fails: `largest`, unless fragmentation makes a size fail
    /// although a larger one fits. Up to 32 sizes on either side of the end of the search are replayed.
    pub largest_safe: Option<Largest>,
    /// The sizes between which the data decides; null if shapes do not vary between steps, or no largest size is known.
    pub data_range: Option<DataRange>,
    /// The largest safe size under any setting tried, if that is larger than `largest_safe`; otherwise null.
    pub best: Option<Largest>,
    /// The largest sizes for each second number that was recorded or given; absent for sizes of one number. `largest`
    /// and `best` are those of the largest given second number, or of the largest recorded one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_second: Vec<LargestAt>,
    /// First number of the size of `growth`: the largest that fits, or the largest recorded one.
    pub growth_at: u64,
    /// Second number of the size of `growth`; absent for sizes of one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_at_second: Option<u64>,
    /// The source lines that hold memory at the peak, those that grow most first.
    pub growth: Vec<GrowingLine>,
    /// Bytes of all other lines at that peak.
    pub growth_rest_bytes: u64,
    /// Number of requests of each recording, in order of size.
    pub requests: Vec<u64>,
    /// Source lines with unpaired memory at the peak of the largest recording, which is assumed to grow like other
    /// requests of the same bytes.
    pub unpaired: Vec<GrowingLine>,
    /// Lines at risk: a kernel begins to request a buffer at a size between the largest recorded one and `growth_at`.
    pub thresholds: Vec<ThresholdLine>,
    /// Lines that sort or scan growing data: such a kernel takes other paths at other sizes, so that the answer is at most
    /// `should`.
    pub sorts: Vec<SortLine>,
    /// Product name of the GPU whose number of multiprocessors decides which reductions take a buffer: that of
    /// `--capacity`, else the recorded one; null if no reduction is known, or the recordings do not name their GPU.
    pub launched_on: Option<&'static str>,
    /// Whether `capacity_bytes` is that of another, unnamed GPU, on which reductions may take other buffers.
    #[serde(skip)]
    pub is_launched_elsewhere: bool,
    /// Each recording, predicted from the others; empty for fewer than three recordings.
    pub checked: Vec<LeaveOneOutCheck>,
    /// The operations that larger sizes repeat more often; null if every size has as many, and if they do not follow
    /// from the recordings.
    pub repeated: Option<RepeatedOperations>,
    /// The recordings have a warning that makes every figure an estimate.
    #[serde(skip)]
    pub(super) has_recording_warnings: bool,
    /// The recorded sizes.
    #[serde(skip)]
    recorded_sizes: Vec<Size>,
    /// Only multiples of this size count as fitting.
    #[serde(skip)]
    multiple: u64,
}

impl FitDevice {
    /// Whether a warning makes the answer an estimate.
    pub fn is_doubtful(&self) -> bool {
        self.has_doubtful_recordings() || self.distant_size().is_some()
    }

    /// Whether a warning makes every size an estimate.
    pub(super) fn has_doubtful_recordings(&self) -> bool {
        self.paired_ratio.min(self.asked_paired_ratio) < 1.0 - WARN_UNMATCHED_RATIO
            || self.shrinking_ratio > WARN_UNMATCHED_RATIO
            || self.freed_elsewhere_ratio > WARN_ERROR_RATIO
            || self.varies()
            || self.guessed_ratio > WARN_UNMATCHED_RATIO
            || self.has_recording_warnings
            || self.checked.iter().any(LeaveOneOutCheck::is_off)
    }

    /// The largest recorded numbers.
    pub fn recorded_size(&self) -> Size {
        Size { first: self.largest_recorded, second: self.largest_recorded_second }
    }

    /// The largest size that fits or has a predicted peak, if it is far from the recorded ones; with its ratio to the
    /// largest recorded size.
    pub(super) fn distant_size(&self) -> Option<(Size, u128)> {
        let others = self.by_second.iter().filter_map(|of| of.largest.as_ref());
        let fits = self.largest.iter().chain(others).filter_map(Largest::to_size);
        let predicted =
            self.sizes.iter().filter(|prediction| prediction.failed.is_none()).map(|prediction| prediction.size);
        let farthest = fits.chain(predicted).max_by_key(|size| size.product())?;
        let times = farthest.product() / self.recorded_size().product().max(1);
        (times >= FAR_FACTOR.into()).then_some((farthest, times))
    }

    /// Whether requests at the peak change their size from step to step.
    pub fn varies(&self) -> bool {
        self.varying_ratio > WARN_UNMATCHED_RATIO
    }

    /// Sets the certainty of each answer, given the sizes that were recorded with no more memory than the device has.
    fn rate_answers(&mut self, confirmed: &[Size]) {
        let ratings: Vec<FitCertainty> = self.answers().map(|answer| self.rate(answer, confirmed)).collect();
        let of_seconds = self.by_second.iter_mut().flat_map(|of| [&mut of.largest, &mut of.largest_safe, &mut of.best]);
        let answers = [&mut self.largest, &mut self.largest_safe, &mut self.best].into_iter().chain(of_seconds);
        for (answer, certainty) in answers.flatten().zip(ratings) {
            answer.certainty = certainty;
        }
    }

    fn answers(&self) -> impl Iterator<Item = &Largest> {
        let of_seconds = self.by_second.iter().flat_map(|of| [&of.largest, &of.largest_safe, &of.best]);
        [&self.largest, &self.largest_safe, &self.best].into_iter().chain(of_seconds).flatten()
    }

    fn rate(&self, answer: &Largest, confirmed: &[Size]) -> FitCertainty {
        let size = answer.to_size();
        let is_confirmed = answer.settings.is_empty() && size.is_some_and(|size| confirmed.contains(&size));
        match () {
            () if is_confirmed => FitCertainty::Confirmed,
            () if self.is_doubtful() => FitCertainty::Estimate,
            () if answer.is_at_risk || self.has_unchecked_repetitions(size) => {
                self.certainty_at(size).max(FitCertainty::Should)
            }
            () => self.certainty_at(size),
        }
    }

    /// Whether the law of every byte is known, and every recording is predicted to the byte from the others. An error that
    /// is small in one recording may be a unit of the size at the answer.
    fn is_exact(&self) -> bool {
        let is_paired = self.paired_ratio >= 1.0 && self.guessed_ratio <= 0.0 && self.varying_ratio <= 0.0;
        is_paired && !self.checked.is_empty() && self.checked.iter().all(LeaveOneOutCheck::is_exact)
    }

    /// Whether no recording shows that the number of repetitions at `size`, and at the next one that fails, is predicted
    /// well: a last chunk that is smaller than the others is not in recordings of whole chunks.
    fn has_unchecked_repetitions(&self, size: Option<Size>) -> bool {
        let Some(repeated) = &self.repeated else { return false };
        let remainder = |size: u64| size % repeated.units.max(1);
        let is_recorded = |size: u64| self.recorded_sizes.iter().any(|of| remainder(of.first) == remainder(size));
        let sizes = size.iter().flat_map(|size| [size.first, size.first.saturating_add(self.multiple)]);
        self.checked.is_empty() || !sizes.into_iter().all(is_recorded)
    }

    /// How certain a prediction is that the program fits at `size`, or at every size.
    pub fn certainty_at(&self, size: Option<Size>) -> FitCertainty {
        let times = size.map(|size| size.product() / self.recorded_size().product().max(1));
        match times {
            _ if self.has_doubtful_recordings() => FitCertainty::Estimate,
            Some(times) if times >= FAR_FACTOR.into() => FitCertainty::Estimate,
            Some(times) if times < CHECKED_FACTOR.into() && self.is_exact() => FitCertainty::Checked,
            _ => FitCertainty::Should,
        }
    }

    /// The largest size that is checked, and the largest that should be predicted well.
    pub(super) fn trusted_sizes(&self) -> [Size; 2] {
        let largest = self.recorded_size();
        let below = |factor: u64| largest.with_number(0, |n| n.saturating_mul(factor).saturating_sub(1));
        [if self.is_exact() { below(CHECKED_FACTOR) } else { largest }, below(FAR_FACTOR)]
    }

    /// The size of `growth`.
    pub fn growth_size(&self) -> Size {
        Size { first: self.growth_at, second: self.growth_at_second }
    }
}

/// From this ratio to the largest recorded size on, kernels may take other paths than in any recording.
const CHECKED_FACTOR: u64 = 2;

/// From this ratio on, an answer is an estimate: other kernels may be used at small sizes,
/// and a nearer recording is cheap to make.
const FAR_FACTOR: u64 = 8;

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// # Errors
    /// One sentence, for an invalid option or recordings that do not belong together.
    pub(super) fn fit(&self, options: &FitOptions<'_>, has_recording_warnings: bool) -> Result<FitDevice, String> {
        let fitted_sizes = FittedSizes::new(self);
        let fitted = |size: Size| fitted_sizes.at(size);
        let devices = || self.recordings.iter().map(|recording| recording.device);
        let recorded = devices().find_map(DeviceStudy::recorded_capacity);
        let inferred = || devices().filter_map(DeviceStudy::inferred_capacity).max();
        let capacity = options.capacity.or(recorded).or_else(inferred);
        let largest_recorded = self.largest_recorded();
        let base = fitted(largest_recorded);
        let overrides = build_overrides(base, capacity, options)?;
        let settings = hypothesis_with(base.base.device, &overrides).settings;
        let at_recorded = PeakMemory::from_program(base, base.base.size, &settings, None);
        if at_recorded.shrinks() && at_recorded.stacks_paired_ratio(base) >= MIN_PAIRED_RATIO {
            return Err(format!(
                "GPU {}: the peak is lower at the larger size: are the sizes swapped, or are the recordings of \
                 different programs?",
                base.base.device.id()
            ));
        }
        // Repetitions are checked operation by operation.
        let compared = self.recordings.iter().filter(|_| base.repetitions.is_none());
        let freed_elsewhere = compared.map(|recording| {
            let fitted = fitted(recording.size);
            PeakMemory::from_program(fitted, recording.size, &settings, None).freed_elsewhere_ratio(fitted)
        });
        let freed_elsewhere_ratio = freed_elsewhere.fold(0.0, f64::max);
        // If the number of unpaired requests grows with the size, the peak at another size is unknown.
        let requests_grow = at_recorded.paired_ratio() < 1.0 - WARN_UNMATCHED_RATIO
            && self.recordings.windows(2).any(|two| makes_more_requests(&two[0], &two[1]));
        let slices: Vec<(SizeSlice<'_, '_, 's, 'a>, Option<FoundSizes>)> = self
            .second_numbers(options)
            .into_iter()
            .map(|second| {
                let slice = SizeSlice { fitted: &fitted, second, multiple: options.multiple };
                let found = if requests_grow { None } else { slice.search(&overrides, largest_recorded.first) };
                (slice, found)
            })
            .collect();
        let varies = at_recorded.varying_ratio(base) > WARN_UNMATCHED_RATIO;
        let answer_of = |(slice, found): &(SizeSlice<'_, '_, 's, 'a>, Option<FoundSizes>)| {
            self.find_answer(slice, *found, varies, &overrides, options)
        };
        let mut by_second: Vec<LargestAt> = slices.iter().map(answer_of).collect();
        let answered_second = options.at_second.iter().max().copied().or(largest_recorded.second);
        let answer = by_second.iter().find(|of| of.second == answered_second).cloned();
        let (largest, largest_safe, data_range, best) =
            answer.map_or((None, None, None, None), |of| (of.largest, of.largest_safe, of.data_range, of.best));
        let fits = largest_safe.as_ref().and_then(Largest::to_size).filter(|size| size.first > 0);
        let growth_at = fits.unwrap_or(Size { second: answered_second, ..largest_recorded });
        let sizes = self
            .sizes_to_predict(&slices, &by_second, options)
            .into_par_iter()
            .filter(|size| fitted(*size).can_predict(*size))
            .map(|size| {
                let range = by_second.iter().find(|of| of.second == size.second).and_then(|of| of.data_range);
                let is_open = varies && range.is_none_or(|range| range.contains(size.first));
                self.predict_size(fitted(size), size, &overrides, [requests_grow, is_open], options)
            })
            .collect();
        by_second.retain(|of| of.second.is_some());
        let at_growth = PeakMemory::from_program(fitted(growth_at), growth_at, &settings, options.gpu);
        let growth = at_growth.growing_lines(fitted(growth_at), &settings, options.top);
        let growth_bytes = growth.iter().fold(0u64, |sum, line| sum.saturating_add(line.bytes));
        let mut device = FitDevice {
            device: base.base.device.id(),
            capacity_bytes: capacity,
            paired_ratio: at_recorded.paired_ratio(),
            stacks_paired_ratio: at_recorded.stacks_paired_ratio(base),
            asked_paired_ratio: base.requested_paired_ratio(),
            shrinking_ratio: at_recorded.shrinking_ratio(),
            freed_elsewhere_ratio,
            varying_ratio: at_recorded.varying_ratio(base),
            guessed_ratio: base.guessed_ratio(),
            largest_recorded: largest_recorded.first,
            largest_recorded_second: largest_recorded.second,
            sizes,
            largest,
            largest_safe,
            data_range,
            best,
            by_second,
            growth_at: growth_at.first,
            growth_at_second: growth_at.second,
            growth_rest_bytes: at_growth.total_bytes().saturating_sub(growth_bytes),
            growth,
            requests: self.recordings.iter().map(|recording| recording.requests.len() as u64).collect(),
            unpaired: at_recorded.unpaired_lines(base, options.top),
            thresholds: threshold_lines(fitted(growth_at), [largest_recorded, growth_at], options.gpu, options.top),
            sorts: sort_lines(base, options.top),
            launched_on: base.launched_on(options.gpu),
            is_launched_elsewhere: options.gpu.is_none() && options.capacity.is_some(),
            checked: self.leave_one_out(base.repetitions.is_some()),
            repeated: base.repetitions.as_ref().map(Repetitions::report),
            has_recording_warnings,
            recorded_sizes: self.recordings.iter().map(|recording| recording.size).collect(),
            multiple: options.multiple,
        };
        let is_within = |bytes: u64| capacity.is_none_or(|capacity| bytes <= capacity);
        let ran = self.recordings.iter().filter(|recording| !recording.ends_in_failure());
        let confirmed = ran.filter(|recording| is_within(recording.device.peak().reserved_bytes));
        device.rate_answers(&confirmed.map(|recording| recording.size).collect::<Vec<_>>());
        Ok(device)
    }

    /// The largest recorded first and second number.
    pub(super) fn largest_recorded(&self) -> Size {
        let sizes = || self.recordings.iter().map(|recording| recording.size);
        Size {
            first: sizes().map(|size| size.first).max().unwrap_or(1),
            second: sizes().filter_map(|size| size.second).max(),
        }
    }

    /// The second numbers to search the largest first number for: recorded and given ones; `None` for sizes of one
    /// number.
    fn second_numbers(&self, options: &FitOptions<'_>) -> BTreeSet<Option<u64>> {
        let recorded = self.recordings.iter().map(|recording| recording.size.second);
        recorded.chain(options.at_second.iter().copied().map(Some)).collect()
    }

    fn sizes_to_predict(
        &self,
        slices: &[(SizeSlice<'_, '_, 's, 'a>, Option<FoundSizes>)],
        answers: &[LargestAt],
        options: &FitOptions<'_>,
    ) -> Vec<Size> {
        let multiple = options.multiple;
        let answered_sizes = |of: &LargestAt| -> Vec<u64> {
            let answers = [&of.largest_safe, &of.largest].map(|answer| answer.as_ref()?.size.filter(|size| *size > 0));
            let next = |size: u64| size.saturating_add(multiple);
            match of.data_range {
                Some(range) => {
                    answers[0].into_iter().chain([range.minimum, range.maximum, next(range.maximum)]).collect()
                }
                None => answers.into_iter().flatten().flat_map(|size| [size, next(size)]).collect(),
            }
        };
        let mut sizes = options.at.to_vec();
        if sizes.is_empty() && options.at_second.is_empty() {
            let mut firsts: BTreeSet<u64> = self.recordings.iter().map(|recording| recording.size.first).collect();
            let largest = self.largest_recorded().first;
            for ((_, found), answer) in slices.iter().zip(answers) {
                firsts.extend(answered_sizes(answer));
                match &found.map(|found| found.largest) {
                    Some(LargestSize::Size(size)) => {
                        let mut double = largest.saturating_mul(2);
                        while double < *size {
                            firsts.insert(double);
                            double = double.saturating_mul(2);
                        }
                    }
                    Some(LargestSize::Nothing) => _ = firsts.insert(multiple),
                    _ => firsts.extend([2, 4].map(|times| largest.saturating_mul(times))),
                }
            }
            let sizes_of = |(slice, _): &(SizeSlice<'_, '_, 's, 'a>, _)| {
                firsts.iter().map(|first| slice.size(*first)).collect::<Vec<_>>()
            };
            sizes = slices.iter().flat_map(sizes_of).collect();
        } else {
            for ((slice, _), answer) in slices.iter().zip(answers) {
                sizes.extend(answered_sizes(answer).into_iter().map(|first| slice.size(first)));
            }
        }
        sizes.sort_unstable_by_key(|size| (size.second, size.first));
        sizes.dedup();
        sizes
    }

    /// Predicts each recording from the others, if enough are left; with `repeats`, where operations repeat among these.
    fn leave_one_out(&self, repeats: bool) -> Vec<LeaveOneOutCheck> {
        let check = |recording: &SizedRecording<'_, '_>| {
            let others = self.recordings.iter().map(|other| other.size);
            let others: Vec<Size> = others.filter(|size| *size != recording.size).collect();
            if !missing_sizes(&others).is_empty() {
                return None;
            }
            let left_out = Some(recording.size);
            let fit = |index: usize| self.fit_recording(index, left_out);
            let repeated = self.most_requests(left_out).map(fit).filter(|fitted| fitted.repetitions.is_some());
            let mut fitted = match repeated {
                Some(fitted) => fitted,
                None => fit(self.nearest(recording.size, left_out)?),
            };
            // With too few repetitions left, this says nothing about a fit to all recordings.
            if !fitted.can_predict(recording.size) || fitted.repetitions.is_none() && repeats {
                return None;
            }
            let check = LeaveOneOutCheck::new(recording, &fitted);
            if !check.is_off() || fitted.repetitions.is_some() {
                return Some(check);
            }
            // The one recording that is left out may be the one that shows a buffer of a reduction. Its rule is checked
            // in every recording when it is found.
            let base = self.recordings.iter().position(|other| other.size == fitted.base.size)?;
            fitted.reductions = self.fit_recording(base, None).reductions;
            Some(LeaveOneOutCheck::new(recording, &fitted))
        };
        self.recordings.par_iter().filter_map(check).collect()
    }
}

/// Whether the number of requests grows with the size, and does not only vary between steps.
fn makes_more_requests(smaller: &SizedRecording<'_, '_>, larger: &SizedRecording<'_, '_>) -> bool {
    request_counts(smaller).end() < request_counts(larger).start()
}

/// The fewest and the most requests of a step, without the first, which also makes what later ones keep; those of the
/// whole recording if it has no such steps. Buffers of reductions do not count.
fn request_counts(recording: &SizedRecording<'_, '_>) -> RangeInclusive<usize> {
    let steps = Steps::from_recording(recording);
    let made = |range: Range<usize>| recording.requests[range].iter().filter(|request| !request.is_scratch).count();
    let counts = || steps.completed_ranges().iter().skip(1).cloned().map(made);
    let total = made(0..recording.requests.len());
    counts().min().unwrap_or(total)..=counts().max().unwrap_or(total)
}

/// The overrides of all replays: the capacity and the settings of `options`.
fn build_overrides(
    base: &FittedProgram<'_, '_, '_>,
    capacity: Option<u64>,
    options: &FitOptions<'_>,
) -> Result<Overrides, String> {
    let device = base.base.device;
    let apply = |option| apply_option(device.snapshot(), &device.inferred().hypothesis, option);
    let settings = options.settings.map(apply).transpose();
    let settings = settings.map_err(|error| format!("--set {error}"))?;
    Ok(Overrides { settings, capacity, minor: None, gpu: options.gpu })
}
