//! The recordings of one device, each fitted to the others when it is first needed.

use std::sync::OnceLock;

use super::data_factor::DataFactor;
use super::device_recordings::DeviceRecordings;
use super::fitted_program::FittedProgram;

pub(in crate::whatif) struct FittedSizes<'r, 's, 'a> {
    recordings: &'r DeviceRecordings<'s, 'a>,
    data_factor: DataFactor,
    programs: Vec<OnceLock<FittedProgram<'r, 's, 'a>>>,
}

impl<'r, 's, 'a> FittedSizes<'r, 's, 'a> {
    /// There are at least two recordings.
    pub(in crate::whatif) fn new(recordings: &'r DeviceRecordings<'s, 'a>) -> Self {
        Self::with_data_factor(recordings, DataFactor::ONE)
    }

    /// The same, with data that takes more or less than recorded.
    pub(super) fn with_data_factor(recordings: &'r DeviceRecordings<'s, 'a>, data_factor: DataFactor) -> Self {
        let programs = recordings.recordings.iter().map(|_| OnceLock::new()).collect();
        Self { recordings, data_factor, programs }
    }

    /// The program of the recording nearest to `size`, or of the largest one if its operations repeat.
    pub(in crate::whatif) fn at(&self, size: u64) -> &FittedProgram<'r, 's, 'a> {
        let fit = |index: usize| {
            let mut fitted = self.recordings.fit_recording(index, None);
            fitted.data_factor = self.data_factor;
            fitted
        };
        let fitted = |index: usize| self.programs[index].get_or_init(|| fit(index));
        let repeated = self.recordings.most_requests(None).map(fitted).filter(|fitted| fitted.repetitions.is_some());
        repeated.unwrap_or_else(|| fitted(self.recordings.nearest(size, None).unwrap_or(0)))
    }
}
