//! The fit of one device.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use rayon::prelude::*;
use serde::Serialize;

use super::fitted_program::{DeviceRecordings, FittedProgram, FittedSizes};
use super::growth::{GrowingLine, PeakMemory};
use super::input::{FitOptions, SizedRecording, SizedRequest};
use super::pairing::Steps;
use super::prediction::{
    FitSearch, FoundSizes, Largest, LeaveOneOutCheck, MIN_PAIRED_RATIO, SizeReport, WARN_ERROR_RATIO,
    WARN_UNMATCHED_RATIO, predict,
};
use crate::allocator::conf::Settings;
use crate::study::DeviceStudy;
use crate::whatif::{Overrides, Sureness, apply_option, hypothesis_with};

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
    /// Share of the bytes at the peak whose requests change their size from step to step.
    pub varying_ratio: f64,
    /// Share of all requested bytes of the largest recording whose growth is a guess, because too few sizes are
    /// recorded.
    pub guessed_ratio: f64,
    /// The largest recorded size.
    pub largest_recorded: u64,
    /// Predictions in ascending order of the size. Those of `--sizes`, else the recorded sizes, and those around the
    /// largest that fits.
    pub sizes: Vec<SizeReport>,
    /// The largest size that fits under the recorded settings or those of `--set`, though fragmentation may make a
    /// smaller one fail; null without a capacity, and if the number of unpaired requests at the peak grows with the size.
    #[serde(rename = "largest_possible")]
    pub largest: Option<Largest>,
    /// The answer: the largest size below which no size that was replayed fails. Up to 32 sizes on either side of the end
    /// of the search are replayed.
    #[serde(rename = "largest")]
    pub largest_safe: Option<Largest>,
    /// The largest safe size under any setting tried, if that is larger than `largest`; otherwise null.
    pub best: Option<Largest>,
    /// The smallest and the largest answer of the recordings, each by the data of its own steps; null if data does not
    /// decide about shapes.
    pub by_data: Option<[u64; 2]>,
    /// The size of `growth`: the largest that fits, or the largest recorded one.
    pub growth_at: u64,
    /// The source lines that hold memory at the peak, those that grow most first.
    pub growth: Vec<GrowingLine>,
    /// Bytes of all other lines at that peak.
    pub growth_rest_bytes: u64,
    /// Number of requests of each recording, in order of size.
    pub requests: Vec<u64>,
    /// Source lines with unpaired memory at the peak of the largest recording, which is assumed to grow like other
    /// requests of the same bytes.
    pub unpaired: Vec<GrowingLine>,
    /// Product name of the GPU whose number of multiprocessors decides which reductions take a buffer: that of
    /// `--capacity`, else the recorded one; null if no reduction is known, or the recordings do not name their GPU.
    pub launched_on: Option<&'static str>,
    /// Whether `capacity_bytes` is that of another, unnamed GPU, on which reductions may take other buffers.
    #[serde(skip)]
    pub is_launched_elsewhere: bool,
    /// Each recording, predicted from the others; empty for fewer than three recordings.
    pub checked: Vec<LeaveOneOutCheck>,
    /// The recordings have a warning that makes every figure an estimate.
    #[serde(skip)]
    pub(super) has_recording_warnings: bool,
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

    /// The largest size that fits or has a predicted peak, if it is far from the recorded ones; with its ratio to the
    /// largest recorded size.
    pub(super) fn distant_size(&self) -> Option<(u64, u64)> {
        let fits = self.largest.iter().filter_map(|largest| largest.size);
        let predicted =
            self.sizes.iter().filter(|prediction| prediction.failed.is_none()).map(|prediction| prediction.size);
        let farthest = fits.chain(predicted).max()?;
        let times = farthest / self.largest_recorded.max(1);
        (times >= self.far_factor()).then_some((farthest, times))
    }

    /// Whether requests at the peak change their size from step to step.
    pub fn varies(&self) -> bool {
        self.varying_ratio > WARN_UNMATCHED_RATIO
    }

    /// Sets the certainty of each answer, given the sizes that were recorded with no more memory than the device has.
    fn rate_answers(&mut self, confirmed: &[u64]) {
        let answers = [&self.largest, &self.largest_safe, &self.best].into_iter().flatten();
        let ratings: Vec<Sureness> = answers.map(|answer| self.rate(answer, confirmed)).collect();
        let answers = [&mut self.largest, &mut self.largest_safe, &mut self.best].into_iter().flatten();
        for (answer, certainty) in answers.zip(ratings) {
            answer.certainty = certainty;
        }
    }

    fn rate(&self, answer: &Largest, confirmed: &[u64]) -> Sureness {
        let size = answer.size;
        let is_confirmed = answer.settings.is_empty() && size.is_some_and(|size| confirmed.contains(&size));
        match () {
            () if is_confirmed => Sureness::Confirmed,
            () if self.is_doubtful() => Sureness::Estimate,
            () if answer.is_at_risk => self.certainty_at(size).max(Sureness::Should),
            () => self.certainty_at(size),
        }
    }

    /// Whether the law of every byte is known, and every recording is predicted to the byte from the others. An error that
    /// is small in one recording may be a unit of the size at the answer.
    fn is_exact(&self) -> bool {
        let is_paired = self.paired_ratio >= 1.0 && self.guessed_ratio <= 0.0 && self.varying_ratio <= 0.0;
        is_paired && !self.checked.is_empty() && self.checked.iter().all(LeaveOneOutCheck::is_exact)
    }

    /// How certain a prediction is that the program fits at `size`, or at every size.
    pub fn certainty_at(&self, size: Option<u64>) -> Sureness {
        let times = size.map(|size| size / self.largest_recorded.max(1));
        match times {
            _ if self.has_doubtful_recordings() => Sureness::Estimate,
            Some(times) if times >= self.far_factor() => Sureness::Estimate,
            Some(times) if times < CHECKED_FACTOR && self.is_exact() => Sureness::Checked,
            _ => Sureness::Should,
        }
    }

    fn far_factor(&self) -> u64 {
        if self.checked.is_empty() { UNCHECKED_FAR_FACTOR } else { FAR_FACTOR }
    }

    /// The largest size that is checked, and the largest that should be predicted well.
    pub(super) fn trusted_sizes(&self) -> [u64; 2] {
        let largest = self.largest_recorded;
        let [checked, trusted] =
            [CHECKED_FACTOR, self.far_factor()].map(|factor| largest.saturating_mul(factor).saturating_sub(1));
        [if self.is_exact() { checked } else { largest }, trusted]
    }
}

/// From this ratio to the largest recorded size on, kernels may take other paths than in any recording.
const CHECKED_FACTOR: u64 = 2;

/// From this ratio on, an answer is an estimate: other kernels may be used at small sizes,
/// and a nearer recording is cheap to make.
const FAR_FACTOR: u64 = 8;
/// The same if no third recording checks the others.
const UNCHECKED_FAR_FACTOR: u64 = 5;

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// # Errors
    /// One sentence, for an invalid option or recordings that do not belong together.
    pub(super) fn fit(&self, options: &FitOptions<'_>, has_recording_warnings: bool) -> Result<FitDevice, String> {
        let fitted_sizes = FittedSizes::new(self);
        let capacity = options.capacity.or_else(|| self.known_capacity());
        let largest_recorded = self.largest_recorded();
        let base = fitted_sizes.at(largest_recorded);
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
        // If the number of unpaired requests grows with the size, and does not only vary between steps, the peak at
        // another size is unknown.
        let requests_grow = at_recorded.paired_ratio() < 1.0 - WARN_UNMATCHED_RATIO
            && self.recordings.windows(2).any(|two| request_counts(&two[0]).end() < request_counts(&two[1]).start());
        let search = FitSearch { fitted: &|size| fitted_sizes.at(size), multiple: options.multiple };
        let found = if requests_grow { None } else { search.search(&overrides, largest_recorded) };
        // A size that makes more requests, as a number of steps does, may keep more after the recorded peak.
        let repeats = self.recordings.windows(2).any(|two| two[0].requests.len() < two[1].requests.len());
        let found = found.filter(|found| found.safe.is_some() || !repeats);
        let varies = at_recorded.varying_ratio(base) > WARN_UNMATCHED_RATIO;
        let by_data = if varies { self.answers_by_data(&fitted_sizes, &overrides, options.multiple) } else { None };
        let safe = found.and_then(|found| found.safe);
        // The gain of a setting is small beside that of other data.
        let improvable = safe.filter(|_| options.settings.is_none() && !varies);
        let growth_at = safe.filter(|size| *size > 0).unwrap_or(largest_recorded);
        let sizes = self.sizes_to_predict(found, options).into_par_iter();
        let sizes =
            sizes.map(|size| self.predict_size(fitted_sizes.at(size), size, &overrides, requests_grow, options));
        let at_growth = PeakMemory::from_program(fitted_sizes.at(growth_at), growth_at, &settings, options.gpu);
        let growth = at_growth.lines(fitted_sizes.at(growth_at), true);
        let growth_bytes = growth.iter().fold(0u64, |sum, line| sum.saturating_add(line.bytes));
        let mut device = FitDevice {
            device: base.base.device.id(),
            capacity_bytes: capacity,
            paired_ratio: at_recorded.paired_ratio(),
            stacks_paired_ratio: at_recorded.stacks_paired_ratio(base),
            asked_paired_ratio: base.requested_paired_ratio(),
            shrinking_ratio: at_recorded.shrinking_ratio(),
            freed_elsewhere_ratio: self.freed_elsewhere_ratio(&fitted_sizes, &settings),
            varying_ratio: at_recorded.varying_ratio(base),
            guessed_ratio: base.guessed_ratio(),
            largest_recorded,
            sizes: sizes.collect(),
            largest: found.map(|found| search.to_largest(found.largest, &overrides)),
            largest_safe: found.map(|found| search.to_largest(found.safe, &overrides)),
            best: improvable.and_then(|size| search.best_settings(&overrides, size)),
            by_data,
            growth_at,
            growth_rest_bytes: at_growth.total_bytes().saturating_sub(growth_bytes),
            growth,
            requests: self.recordings.iter().map(|recording| recording.requests.len() as u64).collect(),
            unpaired: at_recorded.lines(base, false),
            launched_on: base.launched_on(options.gpu),
            is_launched_elsewhere: options.gpu.is_none() && options.capacity.is_some(),
            checked: self.leave_one_out(),
            has_recording_warnings,
        };
        device.rate_answers(&self.confirmed_sizes(capacity));
        Ok(device)
    }

    /// The device memory that the recordings show.
    fn known_capacity(&self) -> Option<u64> {
        let devices = self.recordings.iter().map(|recording| recording.device);
        let recorded = devices.clone().find_map(DeviceStudy::recorded_capacity);
        recorded.or_else(|| devices.filter_map(DeviceStudy::inferred_capacity).max())
    }

    /// The sizes that were recorded with no more than `capacity`.
    fn confirmed_sizes(&self, capacity: Option<u64>) -> Vec<u64> {
        let ran = self.recordings.iter().filter(|recording| !recording.ends_in_failure());
        let confirmed =
            ran.filter(|recording| capacity.is_none_or(|capacity| recording.device.peak().reserved_bytes <= capacity));
        confirmed.map(|recording| recording.size).collect()
    }

    /// The largest share of the bytes at the peak of a recording that another one has already freed at that point.
    fn freed_elsewhere_ratio(&self, fitted_sizes: &FittedSizes<'_, '_, '_>, settings: &Settings) -> f64 {
        let ratios = self.recordings.iter().map(|recording| {
            let fitted = fitted_sizes.at(recording.size);
            PeakMemory::from_program(fitted, recording.size, settings, None).freed_elsewhere_ratio(fitted)
        });
        ratios.fold(0.0, f64::max)
    }

    /// The smallest and the largest answer of the recordings, each fitted alone to its own data.
    fn answers_by_data(
        &self,
        fitted_sizes: &FittedSizes<'_, '_, '_>,
        overrides: &Overrides,
        multiple: u64,
    ) -> Option<[u64; 2]> {
        let answers = self.recordings.iter().filter(|recording| !recording.ends_in_failure()).map(|recording| {
            let search = FitSearch { fitted: &|_| fitted_sizes.at(recording.size), multiple };
            search.search(overrides, recording.size)?.safe
        });
        let answers: Vec<u64> = answers.collect::<Option<_>>()?;
        Some([*answers.iter().min()?, *answers.iter().max()?])
    }

    pub(super) fn largest_recorded(&self) -> u64 {
        self.recordings.iter().map(|recording| recording.size).max().unwrap_or(1)
    }

    fn sizes_to_predict(&self, found: Option<FoundSizes>, options: &FitOptions<'_>) -> Vec<u64> {
        let multiple = options.multiple;
        let mut sizes: BTreeSet<u64> = options.sizes.iter().copied().collect();
        if sizes.is_empty() {
            sizes.extend(self.recordings.iter().map(|recording| recording.size));
            let largest = self.largest_recorded();
            match found.map(|found| found.largest) {
                Some(Some(0)) => _ = sizes.insert(multiple),
                Some(Some(size)) => {
                    let doubled = std::iter::successors(largest.checked_mul(2), |double| double.checked_mul(2));
                    sizes.extend(doubled.take_while(|double| *double < size));
                }
                _ => sizes.extend([2, 4].map(|times| largest.saturating_mul(times))),
            }
        }
        let answers = found.into_iter().flat_map(|found| [found.safe, found.largest]).flatten();
        let answers = answers.filter(|size| *size > 0);
        sizes.extend(answers.flat_map(|size| [size, size.saturating_add(multiple)]));
        sizes.into_iter().collect()
    }

    /// The row of `size`, with the peaks that were recorded at it, unless they exceed the device. If the number of requests
    /// grows, only a recorded size has an answer.
    fn predict_size(
        &self,
        fitted: &FittedProgram<'_, 's, 'a>,
        size: u64,
        overrides: &Overrides,
        requests_grow: bool,
        options: &FitOptions<'_>,
    ) -> SizeReport {
        let recording = self.recordings.iter().find(|recording| recording.size == size);
        let is_recorded = recording.is_some();
        let without_capacity = Overrides { capacity: None, ..overrides.clone() };
        let assumed = if requests_grow && !is_recorded { &without_capacity } else { overrides };
        let mut predicted = predict(fitted, size, is_recorded, assumed);
        let recorded_peak = recording.filter(|_| options.settings.is_none()).map(|recording| recording.device.peak());
        if let Some(peak) = recorded_peak
            && overrides.capacity.is_none_or(|capacity| peak.reserved_bytes <= capacity)
        {
            predicted.peak_allocated_bytes = peak.allocated_bytes;
            predicted.peak_reserved_bytes = peak.reserved_bytes;
        }
        predicted
    }

    /// Predicts each recording from the others, if enough are left.
    fn leave_one_out(&self) -> Vec<LeaveOneOutCheck> {
        let checks = self.recordings.par_iter().filter_map(|recording| {
            let others = self.recordings.iter().map(|other| other.size);
            let others: Vec<u64> = others.filter(|size| *size != recording.size).collect();
            if others.len() < 2 {
                return None;
            }
            let left_out = Some(recording.size);
            let mut fitted = self.fit_recording(self.nearest(recording.size, left_out)?, left_out);
            let check = LeaveOneOutCheck::new(recording, &fitted);
            if !check.is_off() {
                return Some(check);
            }
            // The recording that is left out may be the only one that shows a buffer of a reduction. Its rule has been
            // checked in every recording.
            let base = self.recordings.iter().position(|other| other.size == fitted.base.size)?;
            fitted.reductions = self.fit_recording(base, None).reductions;
            Some(LeaveOneOutCheck::new(recording, &fitted))
        });
        checks.collect()
    }
}

/// The fewest and the most requests of a step, without the first, which also makes what later ones keep; those of the
/// whole recording if it has no such steps. Buffers of reductions do not count.
fn request_counts(recording: &SizedRecording<'_, '_>) -> RangeInclusive<usize> {
    let steps = Steps::from_recording(recording);
    let after_first = steps.completed_ranges().iter().skip(1);
    let counts = after_first.map(|range| count_without_scratch(&recording.requests[range.clone()]));
    let total = count_without_scratch(&recording.requests);
    counts.clone().min().unwrap_or(total)..=counts.max().unwrap_or(total)
}

fn count_without_scratch(requests: &[SizedRequest]) -> usize {
    requests.iter().filter(|request| !request.is_scratch).count()
}

/// The overrides of all replays: the capacity and the settings of `options`.
fn build_overrides(
    base: &FittedProgram<'_, '_, '_>,
    capacity: Option<u64>,
    options: &FitOptions<'_>,
) -> Result<Overrides, String> {
    let device = base.base.device;
    let hypothesis = &device.inferred().hypothesis;
    let settings = options.settings.map(|option| apply_option(device.snapshot(), hypothesis, option)).transpose();
    let settings = settings.map_err(|error| format!("--set {error}"))?;
    Ok(Overrides { settings, capacity, minor: None, gpu: options.gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::Sureness::{Checked, Confirmed, Estimate, Should};

    impl FitDevice {
        /// The fit of two recordings whose every ratio is the largest without a warning.
        pub(in crate::whatif::fit) fn at_every_limit() -> Self {
            Self {
                device: 0,
                capacity_bytes: None,
                paired_ratio: 1.0 - WARN_UNMATCHED_RATIO,
                stacks_paired_ratio: 1.0,
                asked_paired_ratio: 1.0 - WARN_UNMATCHED_RATIO,
                shrinking_ratio: WARN_UNMATCHED_RATIO,
                freed_elsewhere_ratio: WARN_ERROR_RATIO,
                varying_ratio: WARN_UNMATCHED_RATIO,
                guessed_ratio: WARN_UNMATCHED_RATIO,
                largest_recorded: 8,
                sizes: Vec::new(),
                largest: None,
                largest_safe: None,
                best: None,
                by_data: None,
                growth_at: 8,
                growth: Vec::new(),
                growth_rest_bytes: 0,
                requests: vec![9, 9],
                unpaired: Vec::new(),
                launched_on: None,
                is_launched_elsewhere: false,
                checked: Vec::new(),
                has_recording_warnings: false,
            }
        }
    }

    /// The certainty that `device` gives this answer if sizes 4, 8 and 64 ran.
    fn rated(device: &FitDevice, size: Option<u64>, settings: &str, is_at_risk: bool) -> Sureness {
        let answer = Largest {
            size,
            settings: settings.to_owned(),
            unreserved_bytes: None,
            certainty: Sureness::Estimate,
            is_at_risk,
        };
        let mut device = FitDevice { largest: Some(answer.clone()), largest_safe: Some(answer), ..device.clone() };
        device.rate_answers(&[4, 8, 64]);
        assert_eq!(device.largest, device.largest_safe);
        device.largest.unwrap().certainty
    }

    #[test]
    fn an_answer_is_as_certain_as_its_size_is_near_to_the_recorded_ones() {
        let exact = LeaveOneOutCheck {
            size: 6,
            recorded_allocated_bytes: 7,
            predicted_allocated_bytes: 7,
            allocated_error_ratio: 0.0,
            recorded_reserved_bytes: 9,
            predicted_reserved_bytes: 9,
            reserved_error_ratio: 0.0,
        };
        let certain =
            FitDevice { paired_ratio: 1.0, guessed_ratio: 0.0, varying_ratio: 0.0, ..FitDevice::at_every_limit() };
        let checked = FitDevice { checked: vec![exact], ..certain.clone() };
        for (device, sizes) in [
            (&checked, [(8, Confirmed), (15, Checked), (16, Should), (63, Should), (64, Confirmed), (65, Estimate)]),
            (&certain, [(8, Confirmed), (15, Should), (39, Should), (40, Estimate), (64, Confirmed), (65, Estimate)]),
        ] {
            for (size, certainty) in sizes {
                assert_eq!(rated(device, Some(size), "", false), certainty, "{size}");
            }
        }
        assert_eq!(rated(&checked, Some(8), "max_split_size_mb:32", false), Checked, "no run has these settings");
        assert_eq!(rated(&checked, Some(15), "", true), Should);
        assert_eq!(rated(&checked, None, "", false), Should, "every size fits");
        let varying = FitDevice { varying_ratio: 0.5, ..checked.clone() };
        assert_eq!(rated(&varying, Some(15), "", false), Estimate);
        assert_eq!([&checked, &certain, &varying].map(FitDevice::trusted_sizes), [[15, 63], [8, 39], [8, 63]]);
    }
}
