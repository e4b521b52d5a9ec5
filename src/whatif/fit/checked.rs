//! Predictions held against what was recorded.

use serde::Serialize;

use super::size::Size;

/// What is not paired is worth a word from this share on.
pub(super) const TOLD: f64 = 0.001;
/// An error of a prediction that is worth a word, and a share of memory that is not kept alike.
pub(super) const OFF: f64 = 0.01;

/// Below this share that is paired nothing is predicted.
pub(super) const LEAST_PAIRED: f64 = 0.5;

/// A recording as it is predicted from the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// Its size.
    #[serde(flatten)]
    pub size: Size,
    /// The most that was allocated.
    pub recorded_allocated_bytes: u64,
    /// What the others say of that.
    pub predicted_allocated_bytes: u64,
    /// Predicted less recorded, as a part of that.
    pub allocated_error_ratio: f64,
    /// The most that was reserved.
    pub recorded_reserved_bytes: u64,
    /// What the others say of that.
    pub predicted_reserved_bytes: u64,
    /// Predicted less recorded, as a part of that.
    pub reserved_error_ratio: f64,
}

impl Checked {
    /// Whether a prediction is worse than it should be.
    pub(super) fn is_off(&self) -> bool {
        self.allocated_error_ratio.abs() > OFF
    }
}
