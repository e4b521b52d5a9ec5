//! The recordings of one device, each of which can be fitted to the others.

use std::cmp::Reverse;
use std::sync::OnceLock;

use super::fitted_program::FittedProgram;
use super::input::{FitInput, SizedRecording};
use super::reductions::mark_scratch;

/// The recordings of one device, in order of size.
pub(in crate::whatif) struct DeviceRecordings<'s, 'a> {
    pub(super) recordings: Vec<SizedRecording<'s, 'a>>,
}

impl<'s, 'a> DeviceRecordings<'s, 'a> {
    /// The recordings of device `id` in order of size; those without a trace of it are left out.
    pub(in crate::whatif) fn from_inputs(inputs: &[FitInput<'s, 'a>], id: u64) -> Self {
        let mut recordings: Vec<SizedRecording<'s, 'a>> =
            inputs.iter().filter_map(|input| SizedRecording::from_input(input, id)).collect();
        recordings.sort_by_key(|recording| recording.size);
        mark_scratch(&mut recordings);
        Self { recordings }
    }

    /// The recording nearest to `size`, without the one of size `left_out`. Recordings that do not end with a failure
    /// come first, and the larger of two equally near ones.
    pub(super) fn nearest(&self, size: u64, left_out: Option<u64>) -> Option<usize> {
        let candidates = self.recordings.iter().enumerate();
        let candidates = candidates.filter(|(_, recording)| Some(recording.size) != left_out);
        let rank = |(_, recording): &(usize, &SizedRecording<'_, '_>)| {
            (recording.ends_in_failure(), recording.size.abs_diff(size), Reverse(recording.size))
        };
        candidates.min_by_key(rank).map(|(index, _)| index)
    }

    /// Fits the recording at `index` to all others, without the one of size `left_out`.
    pub(super) fn fit_recording(&self, index: usize, left_out: Option<u64>) -> FittedProgram<'_, 's, 'a> {
        let base = &self.recordings[index];
        let is_other =
            |recording: &&SizedRecording<'s, 'a>| recording.size != base.size && Some(recording.size) != left_out;
        let others: Vec<&SizedRecording<'s, 'a>> = self.recordings.iter().filter(is_other).collect();
        FittedProgram::from_recordings(base, &others)
    }
}

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
