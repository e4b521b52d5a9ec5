//! Searching the sizes between which the data decides.

use super::data_factor::DataFactor;
use super::data_range::DataRange;
use super::device_recordings::DeviceRecordings;
use super::fitted_sizes::FittedSizes;
use super::size::Size;
use super::size_search::{FoundSizes, LargestSize};
use super::slice::SizeSlice;
use super::steps::draws;
use crate::whatif::Overrides;

/// The range of `slice`, searched from `start_size`; `None` if no size can be searched, or the recorded steps leave it
/// open.
pub(super) fn search_data_range(
    recordings: &DeviceRecordings<'_, '_>,
    slice: &SizeSlice<'_, '_, '_, '_>,
    overrides: &Overrides,
    start_size: u64,
) -> Option<DataRange> {
    let draws = draws(&recordings.recordings)?;
    let [less, more] = draws.factors()?;
    let with = |factor: DataFactor| -> Option<FoundSizes> {
        let sizes = FittedSizes::with_data_factor(recordings, factor);
        let fitted = |size: Size| sizes.at(size);
        SizeSlice { fitted: &fitted, second: slice.second, multiple: slice.multiple }.search(overrides, start_size)
    };
    let (LargestSize::Size(minimum), LargestSize::Size(maximum)) = (with(more)?.safe, with(less)?.largest) else {
        return None;
    };
    Some(DataRange { minimum, maximum, steps: draws.steps() as u64 }).filter(DataRange::is_useful)
}
