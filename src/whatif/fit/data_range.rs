//! The sizes between which the data decides, if the shapes of a program vary from step to step.

use serde::Serialize;

use super::input::SizedRecording;
use super::size_search::LargestSize;
use super::slice::SizeSlice;
use super::steps::Steps;
use crate::base::units::ratio;
use crate::whatif::Overrides;

/// The sizes between which the data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataRange {
    /// The largest size that fits if the data takes more than recorded by as much as the recorded steps differ.
    pub minimum: u64,
    /// The largest size that fits if it takes as much less; null if every size does.
    pub maximum: Option<u64>,
}

impl DataRange {
    /// The range of `slice` if peaks differ by the ratio `spread`; `None` if no size can be searched.
    pub(super) fn search(
        slice: &SizeSlice<'_, '_, '_, '_>,
        overrides: &Overrides,
        start: u64,
        spread: f64,
    ) -> Option<Self> {
        let capacity = overrides.capacity? as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
        let at = |capacity: f64| {
            let overrides = Overrides { capacity: Some(capacity as u64), ..overrides.clone() };
            slice.search(&overrides, start)
        };
        let minimum = match at(capacity / (1.0 + spread))?.safe {
            LargestSize::Nothing => 0,
            LargestSize::Size(size) => size,
            LargestSize::Everything => return None,
        };
        let maximum = match at(capacity * (1.0 + spread))?.largest {
            LargestSize::Nothing => Some(0),
            LargestSize::Size(size) => Some(size),
            LargestSize::Everything => None,
        };
        Some(Self { minimum, maximum })
    }
}

/// By how much the peak of one training step exceeds that of another, as a ratio to the lower one. The first step also
/// makes what later ones keep, so it is not compared.
pub(super) fn spread_of_steps(recording: &SizedRecording<'_, '_>) -> f64 {
    let mut freed_before = vec![0u64; recording.requests.len() + 1];
    for request in &recording.requests {
        if let Some(freed) = request.requests_before_free.and_then(|requests| freed_before.get_mut(requests)) {
            *freed += request.bytes;
        }
    }
    let mut live = 0u64;
    let live_at = recording.requests.iter().zip(freed_before).map(|(request, freed)| {
        live = live.saturating_add(request.bytes).saturating_sub(freed);
        live
    });
    let live_at: Vec<u64> = live_at.collect();
    let steps = Steps::from_recording(recording);
    let peaks = || steps.completed_ranges().iter().skip(1).filter_map(|range| live_at[range.clone()].iter().max());
    match (peaks().min(), peaks().max()) {
        (Some(minimum), Some(maximum)) => ratio(maximum - minimum, *minimum),
        _ => 0.0,
    }
}
