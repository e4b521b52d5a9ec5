//! Predicting what the program needs at one size, by replay; and the largest size that fits.

use rayon::prelude::*;
use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::growth::PeakMemory;
use super::input::SizedRecording;
use crate::allocator::device::{Placement, UNBOUNDED};
use crate::allocator::verdict::Verdict;
use crate::base::units::ratio;
use crate::replay::model::{Hypothesis, peak_if_served, simulate};
use crate::replay::ops::Program;
use crate::stacks::frames::CodeLocation;
use crate::whatif::{Overrides, Sureness, candidates, hypothesis_on, hypothesis_with};

/// The memory of the program at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeReport {
    /// The size that is predicted.
    pub size: u64,
    /// Whether a recording at this size was given.
    pub is_recorded: bool,
    /// Peak of allocated bytes, if every request is served.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes; on a device that is large enough if some requests are not served on this one.
    pub peak_reserved_bytes: u64,
    /// Whether every request is served; null if no capacity is known, or if larger sizes make more requests.
    pub fits: Option<bool>,
    /// The first request that fails; null if none does, and if `fits` is null.
    pub failed: Option<PredictedFailure>,
}

/// A request that is predicted to fail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PredictedFailure {
    /// Entry index of the request in the trace of the recording that is nearest in size.
    pub event: usize,
    /// Requested bytes, rounded by the allocator.
    pub requested_bytes: u64,
    /// `capacity` if live memory and the request exceed the device, else `fragmentation`.
    pub verdict: Verdict,
    /// The source line that makes the request.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// Whether every request at `size` is served under `overrides`, which have a capacity.
fn is_served(fitted: &FittedProgram<'_, '_, '_>, size: u64, overrides: &Overrides) -> bool {
    let program = fitted.program_at(size, overrides.gpu);
    let hypothesis = hypothesis_with(fitted.base.device, overrides);
    !initial_memory_exceeds_device(fitted, &program, &hypothesis)
        && peak_if_served(&program, &hypothesis, Placement::Lowest).is_some()
}

/// Predicts what the program needs at `size` under `overrides`.
pub(in crate::whatif) fn predict(
    fitted: &FittedProgram<'_, '_, '_>,
    size: u64,
    is_recorded: bool,
    overrides: &Overrides,
) -> SizeReport {
    let program = fitted.program_at(size, overrides.gpu);
    let hypothesis = hypothesis_with(fitted.base.device, overrides);
    let failed = overrides.capacity.map(|_| first_failure(fitted, &program, &hypothesis));
    let unbounded = Hypothesis { limit: None, ..hypothesis_on(fitted.base.device, UNBOUNDED, overrides) };
    // If all requests are served on the device, its run has the peaks: it may have released cached blocks that an
    // unbounded run keeps.
    let hypothesis_of_peaks = if failed == Some(None) { &hypothesis } else { &unbounded };
    let simulation = simulate(&program, hypothesis_of_peaks, None);
    let peaks = simulation.figures();
    // A request larger than any device fails even in the unbounded run, so only the live bytes are known.
    let is_served = failed == Some(None) || simulation.ooms.is_empty();
    let live_peak = if is_served { 0 } else { program.peak_bytes(&unbounded.settings) };
    SizeReport {
        size,
        is_recorded,
        peak_allocated_bytes: peaks.peak_allocated_bytes.max(live_peak),
        peak_reserved_bytes: peaks.peak_reserved_bytes.max(live_peak),
        fits: failed.as_ref().map(Option::is_none),
        failed: failed.flatten(),
    }
}

/// Whether the memory reserved before the recording alone exceeds the device. It stays unless the program starts from
/// an empty pool.
fn initial_memory_exceeds_device(
    fitted: &FittedProgram<'_, '_, '_>,
    program: &Program<'_>,
    hypothesis: &Hypothesis,
) -> bool {
    let reserved_before = if program.initial_blocks.is_empty() { 0 } else { fitted.base.device.reserved_before() };
    hypothesis.capacity.is_some_and(|capacity| reserved_before > capacity)
}

fn first_failure(
    fitted: &FittedProgram<'_, '_, '_>,
    program: &Program<'_>,
    hypothesis: &Hypothesis,
) -> Option<PredictedFailure> {
    let starts_full = initial_memory_exceeds_device(fitted, program, hypothesis);
    let (event, requested_bytes) = if starts_full {
        (0, fitted.base.device.reserved_before())
    } else {
        simulate(program, hypothesis, None).ooms.first().copied()?
    };
    let first_beyond =
        hypothesis.capacity.and_then(|capacity| program.first_request_over(capacity, &hypothesis.settings));
    let is_full = starts_full || first_beyond.is_some_and(|(first, _)| first <= event);
    let request = fitted.base.requests.iter().find(|request| request.entry_index == event);
    let line = request.map(|request| fitted.base.device.stacks().line_id(request.stack));
    let location = line.map(|line| fitted.base.code_location(line, request)).unwrap_or_default();
    let verdict = if is_full { Verdict::Capacity } else { Verdict::Fragmentation };
    Some(PredictedFailure { event, requested_bytes, verdict, location })
}

/// Warn if more than this share of bytes is unpaired, shrinking, varying or guessed.
pub(super) const WARN_UNMATCHED_RATIO: f64 = 0.001;
/// Warn if a prediction is off by more than this, or if more than this share of memory is freed earlier in another
/// recording.
pub(super) const WARN_ERROR_RATIO: f64 = 0.01;

/// If less than this share of the memory at the peak is paired, nothing is predicted.
pub(super) const MIN_PAIRED_RATIO: f64 = 0.5;

/// Leave-one-out check: one recording, predicted from the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeaveOneOutCheck {
    /// The size of the recording that is predicted.
    pub size: u64,
    /// Recorded peak of allocated bytes.
    pub recorded_allocated_bytes: u64,
    /// Peak of allocated bytes, predicted from the other recordings.
    pub predicted_allocated_bytes: u64,
    /// (predicted - recorded) / recorded
    pub allocated_error_ratio: f64,
    /// Recorded peak of reserved bytes.
    pub recorded_reserved_bytes: u64,
    /// Peak of reserved bytes, predicted from the other recordings.
    pub predicted_reserved_bytes: u64,
    /// (predicted - recorded) / recorded
    pub reserved_error_ratio: f64,
}

impl LeaveOneOutCheck {
    /// Compares `recording` with the prediction of `fitted`, which does not know it.
    pub(super) fn new(recording: &SizedRecording<'_, '_>, fitted: &FittedProgram<'_, '_, '_>) -> Self {
        let prediction = predict(fitted, recording.size, true, &Overrides::default());
        let peak = recording.device.peak();
        Self {
            size: recording.size,
            recorded_allocated_bytes: peak.allocated_bytes,
            recorded_reserved_bytes: peak.reserved_bytes,
            predicted_allocated_bytes: prediction.peak_allocated_bytes,
            predicted_reserved_bytes: prediction.peak_reserved_bytes,
            allocated_error_ratio: relative_error(prediction.peak_allocated_bytes, peak.allocated_bytes),
            reserved_error_ratio: relative_error(prediction.peak_reserved_bytes, peak.reserved_bytes),
        }
    }

    /// Whether both figures are predicted to the byte.
    pub(super) fn is_exact(&self) -> bool {
        self.predicted_allocated_bytes == self.recorded_allocated_bytes
            && self.predicted_reserved_bytes == self.recorded_reserved_bytes
    }

    /// Whether the error is large enough for a warning.
    pub(super) fn is_off(&self) -> bool {
        self.allocated_error_ratio.abs() > WARN_ERROR_RATIO
    }
}

/// `(predicted - recorded) / recorded`
fn relative_error(predicted: u64, recorded: u64) -> f64 {
    let sign = if predicted < recorded { -1.0 } else { 1.0 };
    sign * ratio(predicted.abs_diff(recorded), recorded)
}

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

/// Maximum number of sizes that are replayed on one side of a result.
const MAX_NEIGHBORS: u64 = 32;
/// Maximum number of requests in all these replays, which take a tenth of a second.
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
            peak_live_bytes: &|size| {
                let fitted = (self.fitted)(size);
                let settings = hypothesis_with(fitted.base.device, overrides).settings;
                fitted.program_at(size, overrides.gpu).peak_bytes(&settings)
            },
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
                let settings = hypothesis_with(fitted.base.device, overrides).settings;
                let at_peak = PeakMemory::from_program(fitted, size, &settings, overrides.gpu);
                (headroom, fitted.has_growing_sorts() || at_peak.approximate_ratio() > WARN_UNMATCHED_RATIO)
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
    pub(in crate::whatif) peak_live_bytes: &'f (dyn Fn(u64) -> u64 + Sync),
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
        let Some(upper_bound) = find_last(first_guess, MAX_SIZE / self.multiple, |count| {
            (self.peak_live_bytes)(count.saturating_mul(self.multiple)) <= self.capacity
        }) else {
            return FoundSizes::both(Some(0));
        };
        if upper_bound.saturating_add(1).saturating_mul(self.multiple) > MAX_SIZE {
            return FoundSizes::both(None);
        }
        // The result is usually just below the bound.
        let Some(found) = find_last(upper_bound, upper_bound, |count| self.serves(count)) else {
            return FoundSizes::both(Some(0));
        };
        let above = found + 1..=upper_bound.min(found.saturating_add(self.neighbors));
        let below = found.saturating_sub(self.neighbors).max(1)..found;
        let largest = above.into_par_iter().filter(|count| self.serves(*count)).max().unwrap_or(found);
        let failing = below.into_par_iter().filter(|count| !self.serves(*count)).min();
        let safe = failing.map_or(found, |failing| failing - 1);
        let [largest, safe] = [largest, safe].map(|count| Some(count.saturating_mul(self.multiple)));
        FoundSizes { largest, safe }
    }

    /// Whether every request is served at `count` times the multiple.
    fn serves(&self, count: u64) -> bool {
        (self.is_served)(count.saturating_mul(self.multiple))
    }
}

/// The last count from 1 to `max` that `holds`, assuming that all counts below it hold too. Searches from `first_guess`
/// in strides that double, then bisects.
fn find_last(first_guess: u64, max: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (0, max.saturating_add(1));
    let (mut next, mut stride) = (first_guess.min(max.max(1)), 1u64);
    loop {
        if holds(next) {
            low = next;
        } else {
            high = next;
        }
        if high <= low + 1 {
            return (low > 0).then_some(low);
        }
        next = match low {
            0 => high.saturating_sub(stride).max(1),
            _ if high > max => low.saturating_add(stride).min(max),
            _ => low + (high - low) / 2,
        };
        stride = stride.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign_and_a_limit() {
        let errors = [3, 4, 5].map(|predicted| relative_error(predicted, 4).to_bits());
        assert_eq!(errors, [-0.25, 0.0, 0.25].map(f64::to_bits));
        let checks = [98, 99, 100, 101, 102].map(|predicted| LeaveOneOutCheck {
            size: 1,
            recorded_allocated_bytes: 100,
            predicted_allocated_bytes: predicted,
            allocated_error_ratio: relative_error(predicted, 100),
            recorded_reserved_bytes: 7,
            predicted_reserved_bytes: 7,
            reserved_error_ratio: 0.0,
        });
        assert_eq!(checks.each_ref().map(LeaveOneOutCheck::is_off), [true, false, false, false, true]);
        assert_eq!(checks.each_ref().map(LeaveOneOutCheck::is_exact), [false, false, true, false, false]);
    }

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
        for (multiple, size) in [(1, 90), (8, 88), (128, 0)] {
            assert_eq!(search(multiple, &|n| n * 11 <= 1000), FoundSizes::both(Some(size)));
        }
    }

    #[test]
    fn sizes_beside_the_result_are_tried() {
        let found = FoundSizes { largest: Some(95), safe: Some(89) };
        assert_eq!(search(1, &|n| n <= 95), FoundSizes { safe: Some(95), ..found });
        // The search finds 95 at once; 90 to 92 lie below it.
        assert_eq!(search(1, &|n| n <= 95 && ![90, 92].contains(&n)), found);
        // It steps over 95 and ends at 89.
        assert_eq!(search(1, &|n| n < 90 || n == 95), found);
    }
}
