//! The sizes between which the data decides, if the shapes of a program vary from step to step.
//!
//! A run takes what its largest step takes. Recorded steps show how much draws differ; another run may differ from the
//! recordings by as much. A step of a larger size may also be padded to the longest of more draws, and the expected
//! maximum of `n` draws grows with the logarithm of `n`, in proportion to how much such maxima differ. And few draws may
//! leave open with which power of the size the bytes grow: the prediction takes the lowest, the range all.

use serde::Serialize;

use super::data_factor::DataFactor;
use super::device_recordings::DeviceRecordings;
use super::fitted_sizes::FittedSizes;
use super::size::Size;
use super::size_search::{FoundSizes, LargestSize};
use super::slice::SizeSlice;
use super::steps::{fit_steps, varying_bytes_by_step};
use crate::whatif::Overrides;

/// The sizes between which the data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DataRange {
    /// The largest size that fits if the data takes more than recorded, as in one of 40 runs.
    pub minimum: u64,
    /// The largest size that fits if it takes less, as in one of 40 runs; null if every size does.
    pub maximum: Option<u64>,
}

/// Student's t for 19 of 20 draws, with one degree of freedom and more.
const STUDENT: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];

impl DataRange {
    /// The range for one second number; `None` if no size can be searched, or fewer than two steps are recorded.
    pub(super) fn search(
        recordings: &DeviceRecordings<'_, '_>,
        second: Option<u64>,
        multiple: u64,
        overrides: &Overrides,
        start: u64,
    ) -> Option<Self> {
        let [less, more] = factors(recordings)?;
        let with = |factor: DataFactor| -> Option<FoundSizes> {
            let sizes = FittedSizes::with_data_factor(recordings, factor);
            let fitted = |size: Size| sizes.at(size);
            SizeSlice { fitted: &fitted, second, multiple }.search(overrides, start)
        };
        let minimum = match with(more)?.safe {
            LargestSize::Nothing => 0,
            LargestSize::Size(size) => size,
            LargestSize::Everything => return None,
        };
        let maximum = match with(less)?.largest {
            LargestSize::Nothing => Some(0),
            LargestSize::Size(size) => Some(size),
            LargestSize::Everything => None,
        };
        Some(Self { minimum, maximum })
    }
}

/// By how much less and more the varying requests of another run may take.
fn factors(recordings: &DeviceRecordings<'_, '_>) -> Option<[DataFactor; 2]> {
    let recordings = &recordings.recordings;
    let steps: usize = recordings.iter().map(|recording| varying_bytes_by_step(recording).len()).sum();
    let freedom = steps.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let [lowest, highest] = fit_steps(recordings)?;
    let deviation = (lowest.squares / freedom as f64).sqrt();
    let student = STUDENT[freedom.min(STUDENT.len()) - 1];
    // The prediction is a mean of the recordings, which deviates too.
    let width = student * deviation * (1.0 + 1.0 / recordings.len() as f64).sqrt();
    let logarithms = recordings.iter().map(|recording| (recording.size.first as f64).ln());
    let mean_size = (logarithms.sum::<f64>() / recordings.len() as f64).exp();
    // The standard deviation of a maximum of many draws (Gumbel's distribution) as a part of its growth.
    let growth = deviation * 6f64.sqrt() / std::f64::consts::PI;
    let steeper = f64::from(highest.exponents[0] - lowest.exponents[0]);
    let factor = |logarithm: f64, power: f64| DataFactor { times: logarithm.exp(), mean_size, power };
    Some([factor(-width, 0.0), factor(width, growth + steeper)])
}
