//! The answers of one device: the largest size that fits, and the row of a size.

use super::device_recordings::DeviceRecordings;
use super::fit_search::{Answer, FitSearch};
use super::fitted_program::FittedProgram;
use super::options::FitOptions;
use super::prediction::{SizeReport, predict};
use super::size_search::{FoundSizes, LargestSize};
use crate::whatif::Overrides;

impl FitSearch<'_, '_, '_, '_> {
    /// The largest sizes of the search under `overrides`.
    pub(super) fn answer(
        &self,
        found: Option<FoundSizes>,
        varies: bool,
        overrides: &Overrides,
        options: &FitOptions<'_>,
    ) -> Answer {
        Answer {
            largest: found.map(|found| self.to_largest(found.largest, overrides)),
            largest_safe: found.map(|found| self.to_largest(found.safe, overrides)),
            best: match found.map(|found| found.safe) {
                // The gain of a setting is small beside that of other data.
                _ if options.settings.is_some() || varies => None,
                Some(LargestSize::Size(size)) => self.best_settings(overrides, size),
                Some(LargestSize::Nothing) => self.best_settings(overrides, 0),
                _ => None,
            },
        }
    }
}

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// The row of `size`. If the number of requests grows, only a recorded size has an answer.
    pub(super) fn predict_size(
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
        let predicted = predict(fitted, size, is_recorded, assumed);
        match recording.filter(|_| options.settings.is_none()) {
            Some(recording) => predicted.with_recorded_peak(recording.device.peak(), overrides.capacity),
            None => predicted,
        }
    }
}
