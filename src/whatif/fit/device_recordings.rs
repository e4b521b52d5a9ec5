//! The recordings of one device, each of which can be fitted to the others.

use std::cmp::Reverse;

use super::fitted_program::FittedProgram;
use super::input::{FitInput, SizedRecording};
use super::recorded_scratch::mark_scratch;

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
