//! The answers of one device: the largest size that fits, and the row of a size.

use super::data_search::search_data_range;
use super::device_recordings::DeviceRecordings;
use super::fit_search::{Answer, FitSearch};
use super::fitted_program::FittedProgram;
use super::options::FitOptions;
use super::prediction::{SizeReport, predict};
use super::size_search::{FoundSizes, LargestSize};
use crate::whatif::Overrides;

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// The largest sizes; none if the data decides more than the recorded steps show.
    pub(super) fn find_answer(
        &self,
        search: &FitSearch<'_, '_, 's, 'a>,
        found: Option<FoundSizes>,
        varies: bool,
        overrides: &Overrides,
        options: &FitOptions<'_>,
    ) -> Answer {
        let in_range = |_| search_data_range(self, search.multiple, overrides, self.largest_recorded());
        let data_range = found.filter(|_| varies).and_then(in_range);
        let found = found.filter(|_| !varies || data_range.is_some());
        Answer {
            largest: found.map(|found| search.to_largest(found.largest, overrides)),
            largest_safe: found.map(|found| search.to_largest(found.safe, overrides)),
            data_range,
            best: match found.map(|found| found.safe) {
                // The gain of a setting is small beside that of other data.
                _ if options.settings.is_some() || varies => None,
                Some(LargestSize::Size(size)) => search.best_settings(overrides, size),
                Some(LargestSize::Nothing) => search.best_settings(overrides, 0),
                _ => None,
            },
        }
    }

    /// The row of `size`. If the number of requests grows, or if the data decides, only a recorded size has an answer.
    pub(super) fn predict_size(
        &self,
        fitted: &FittedProgram<'_, 's, 'a>,
        size: u64,
        overrides: &Overrides,
        [requests_grow, is_open]: [bool; 2],
        options: &FitOptions<'_>,
    ) -> SizeReport {
        let recording = self.recordings.iter().find(|recording| recording.size == size);
        let is_recorded = recording.is_some();
        let without_capacity = Overrides { capacity: None, ..overrides.clone() };
        let assumed = if requests_grow && !is_recorded { &without_capacity } else { overrides };
        let predicted = predict(fitted, size, is_recorded, assumed);
        let predicted = if is_open && !is_recorded { predicted.without_answer() } else { predicted };
        match recording.filter(|_| options.settings.is_none()) {
            Some(recording) => predicted.with_recorded_peak(recording.device.peak(), overrides.capacity),
            None => predicted,
        }
    }
}
