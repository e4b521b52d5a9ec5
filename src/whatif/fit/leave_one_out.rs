//! Checking predictions against recordings.

use serde::Serialize;

use super::size::Size;

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
    #[serde(flatten)]
    pub size: Size,
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
    /// Whether the error is large enough for a warning.
    pub(super) fn is_off(&self) -> bool {
        self.allocated_error_ratio.abs() > WARN_ERROR_RATIO
    }
}
