//! Predicting what the program needs at one size, by replay.

use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::growth::PeakMemory;
use super::input::{SizedRecording, SizedRequest};
use crate::allocator::device::{Placement, UNBOUNDED};
use crate::allocator::verdict::Verdict;
use crate::base::units::ratio;
use crate::replay::model::{Hypothesis, peak_if_served, simulate};
use crate::replay::ops::Program;
use crate::stacks::frames::CodeLocation;
use crate::whatif::smallest_capacity::hypothesis_on;
use crate::whatif::{Overrides, hypothesis_with};

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
    /// Whether every request is served; null if no capacity is known, or if larger sizes make
    /// more requests.
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
pub(super) fn is_served(fitted: &FittedProgram<'_, '_, '_>, size: u64, overrides: &Overrides) -> bool {
    let program = fitted.program_at(size, overrides.gpu);
    let hypothesis = hypothesis_with(fitted.base.device, overrides);
    !initial_memory_exceeds_device(fitted, &program, &hypothesis)
        && peak_if_served(&program, &hypothesis, Placement::Lowest).is_some()
}

/// Peak of the live bytes at `size`, a lower bound of the device memory.
pub(super) fn peak_live_bytes(fitted: &FittedProgram<'_, '_, '_>, size: u64, overrides: &Overrides) -> u64 {
    fitted.program_at(size, overrides.gpu).peak_bytes(&hypothesis_with(fitted.base.device, overrides).settings)
}

/// The share of the memory at the peak whose growth is only known approximately.
pub(super) fn approximate_ratio(fitted: &FittedProgram<'_, '_, '_>, size: u64, overrides: &Overrides) -> f64 {
    let settings = hypothesis_with(fitted.base.device, overrides).settings;
    PeakMemory::from_program(fitted, size, &settings, overrides.gpu).approximate_ratio()
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
    let (event, requested_bytes) = if initial_memory_exceeds_device(fitted, program, hypothesis) {
        (0, fitted.base.device.reserved_before())
    } else {
        simulate(program, hypothesis, None).ooms.first().copied()?
    };
    let first_beyond =
        hypothesis.capacity.and_then(|capacity| program.first_request_over(capacity, &hypothesis.settings));
    let is_full = initial_memory_exceeds_device(fitted, program, hypothesis)
        || first_beyond.is_some_and(|(first, _)| first <= event);
    let stacks = fitted.base.device.stacks();
    let request = fitted.base.requests.iter().find(|request| request.entry_index == event);
    let line = |request: &SizedRequest| fitted.base.code_location(stacks.line_id(request.stack), Some(request));
    let location = request.map_or_else(Default::default, line);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign_and_a_limit() {
        let errors = [3, 4, 5].map(|predicted| relative_error(predicted, 4).to_bits());
        assert_eq!(errors, [-0.25, 0.0, 0.25].map(f64::to_bits));
        let check = |predicted: u64, recorded: u64| LeaveOneOutCheck {
            size: 1,
            recorded_allocated_bytes: recorded,
            predicted_allocated_bytes: predicted,
            allocated_error_ratio: relative_error(predicted, recorded),
            recorded_reserved_bytes: 7,
            predicted_reserved_bytes: 7,
            reserved_error_ratio: 0.0,
        };
        assert_eq!([99, 101, 98, 102].map(|predicted| check(predicted, 100).is_off()), [false, false, true, true]);
        assert_eq!([100, 101].map(|predicted| check(predicted, 100).is_exact()), [true, false]);
    }
}
