//! The recordings of one device, each fitted to the others when it is first needed.

use std::sync::OnceLock;

use super::device_recordings::DeviceRecordings;
use super::fitted_program::FittedProgram;

pub(in crate::whatif) struct FittedSizes<'r, 's, 'a> {
    recordings: &'r DeviceRecordings<'s, 'a>,
    programs: Vec<OnceLock<FittedProgram<'r, 's, 'a>>>,
}

impl<'r, 's, 'a> FittedSizes<'r, 's, 'a> {
    /// There are at least two recordings.
    pub(in crate::whatif) fn new(recordings: &'r DeviceRecordings<'s, 'a>) -> Self {
        let programs = recordings.recordings.iter().map(|_| OnceLock::new()).collect();
        Self { recordings, programs }
    }

    /// The program of the recording nearest to `size`.
    pub(in crate::whatif) fn at(&self, size: u64) -> &FittedProgram<'r, 's, 'a> {
        let nearest = self.recordings.nearest(size, None).unwrap_or(0);
        self.programs[nearest].get_or_init(|| self.recordings.fit_recording(nearest, None))
    }
}
