//! The sizes between which the data decides, if the shapes of a program vary from step to step.

use serde::Serialize;

/// A range whose maximum is more than this many times its minimum says nothing.
const MAX_RATIO: u64 = 8;

/// The sizes between which the data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataRange {
    /// The largest size that fits if the data takes more than recorded, as in one of 40 runs.
    pub minimum: u64,
    /// The largest size that fits if it takes less, as in one of 40 runs.
    pub maximum: u64,
    /// The steps of such a run, as many as were recorded. In more steps longer data may come.
    pub steps: u64,
}

impl DataRange {
    /// Whether the data decides if `size` fits.
    pub(super) fn contains(&self, size: u64) -> bool {
        size > self.minimum && size <= self.maximum
    }

    pub(super) fn is_useful(&self) -> bool {
        self.maximum <= self.minimum.saturating_mul(MAX_RATIO)
    }
}
