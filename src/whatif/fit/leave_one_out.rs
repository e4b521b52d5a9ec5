//! Checking predictions against recordings.

use serde::Serialize;

use super::fitted_program::FittedProgram;
use super::input::SizedRecording;
use super::prediction::predict;
use super::size_search::relative_error;
use crate::whatif::Overrides;

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
