//! The recordings of one device, each fitted to the others when it is first needed.

use std::sync::OnceLock;

use super::device_recordings::DeviceRecordings;
use super::fitted_program::FittedProgram;
use super::size::Size;

pub(in crate::whatif) struct FittedSizes<'r, 's, 'a> {
    recordings: &'r DeviceRecordings<'s, 'a>,
    programs: Vec<OnceLock<FittedProgram<'r, 's, 'a>>>,
}

impl<'r, 's, 'a> FittedSizes<'r, 's, 'a> {
    /// There are at least two recordings.
    pub(in crate::whatif) fn new(recordings: &'r DeviceRecordings<'s, 'a>) -> Self {
        Self { recordings, programs: recordings.recordings.iter().map(|_| OnceLock::new()).collect() }
    }

    /// The program of the recording nearest to `size`, or of the largest one if its operations repeat.
    pub(in crate::whatif) fn at(&self, size: Size) -> &FittedProgram<'r, 's, 'a> {
        let fitted = |index: usize| self.programs[index].get_or_init(|| self.recordings.fit_recording(index, None));
        let repeated = self.recordings.most_requests(None).map(fitted).filter(|fitted| fitted.repetitions.is_some());
        repeated.unwrap_or_else(|| fitted(self.recordings.nearest(size, None).unwrap_or(0)))
    }
}
