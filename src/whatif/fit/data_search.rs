//! Searching the sizes between which the data decides.

use super::data_factor::DataFactor;
use super::data_range::DataRange;
use super::device_recordings::DeviceRecordings;
use super::fit_search::FitSearch;
use super::fitted_sizes::FittedSizes;
use super::size_search::{FoundSizes, LargestSize};
use super::steps::draws;
use crate::whatif::Overrides;

/// The range, searched from `start_size`; `None` if no size can be searched, or the recorded steps leave it
/// open.
pub(super) fn search_data_range(
    recordings: &DeviceRecordings<'_, '_>,
    multiple: u64,
    overrides: &Overrides,
    start_size: u64,
) -> Option<DataRange> {
    let draws = draws(&recordings.recordings)?;
    let [less, more] = draws.factors()?;
    let with = |factor: DataFactor| -> Option<FoundSizes> {
        let sizes = FittedSizes::with_data_factor(recordings, factor);
        let fitted = |size: u64| sizes.at(size);
        FitSearch { fitted: &fitted, multiple }.search(overrides, start_size)
    };
    let (LargestSize::Size(minimum), LargestSize::Size(maximum)) = (with(more)?.safe, with(less)?.largest) else {
        return None;
    };
    Some(DataRange { minimum, maximum, steps: draws.steps() as u64 }).filter(DataRange::is_useful)
}
