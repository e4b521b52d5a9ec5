//! All changes that a recording suggests.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::batch::halve_batch;
use super::change_replay::ChangeReplayer;
use super::checkpoint::{checkpoint_by_default, checkpoint_modules};
use super::gradients::free_gradients;
use super::leftovers::free_leftovers;
use super::optimizer::{fuse_optimizer, offload_state, step_by_parameter};
use super::precision::halve_precision;
use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange, ProgramDevice, ProgramRow, rank_rows};
use crate::study::DeviceStudy;
use crate::whatif::Sureness;

/// All changes to the program of `device`, replayed on a device of `capacity` bytes if given.
pub(in crate::whatif) fn replay_changes(device: DeviceStudy<'_, '_>, capacity: Option<u64>) -> ProgramDevice {
    let recording = &RecordedProgram::from_device(device);
    let replayer = ChangeReplayer::new(recording, capacity);
    let replayed = changes(recording, checkpoint_modules).map(|row| replayer.replay_row(row));
    let mut rows: Vec<ProgramRow> = replayed.collect();
    rows.sort_by_key(|row| {
        let is_guess = row.sure == Sureness::Estimate;
        (is_guess, Reverse(row.fits), Reverse(row.serves_failed), Reverse(row.reserved_gain_bytes))
    });
    // Checkpointing a nested module may have the same effect; the outer one is kept.
    rows.dedup_by_key(|row| (row.change, row.peak_allocated_bytes, row.peak_reserved_bytes));
    let (ends_in_failure, goes_on) = (device.ends_with_failure(), recording.is_continued());
    let as_recorded = replayer.baseline_row(unchanged(recording));
    ProgramDevice { device: device.id(), ends_in_failure, goes_on, as_recorded, rows }
}

/// Finds one change that a recording suggests.
pub(in crate::whatif) type FindChange = fn(&RecordedProgram<'_, '_>) -> Option<ChangedProgram>;

/// The changes that only a recording of training steps suggests.
const STEP_CHANGES: [FindChange; 7] =
    [free_gradients, step_by_parameter, fuse_optimizer, offload_state, free_leftovers, halve_batch, halve_precision];

/// The changes that `recording` suggests, with those that `checkpoint` finds. Each is a copy of the program: the lazy
/// iterator keeps only as many of them as there are threads.
fn changes<'r>(
    recording: &'r RecordedProgram<'_, '_>,
    checkpoint: fn(&RecordedProgram<'_, '_>) -> Vec<ChangedProgram>,
) -> impl ParallelIterator<Item = ChangedProgram> {
    let step_changes: &[FindChange] = if recording.has_steps() { &STEP_CHANGES } else { &[] };
    let checkpointed = rayon::iter::once(checkpoint).flat_map_iter(move |find| find(recording));
    checkpointed.chain(step_changes.par_iter().filter_map(move |find| find(recording)))
}

fn unchanged(recording: &RecordedProgram<'_, '_>) -> ChangedProgram {
    let change = (ProgramChange::AsRecorded, Sureness::Checked);
    let unchanged = recording.changed(change, "as recorded", |_| false, recording.script.clone());
    ChangedProgram { bytes_at_peak: recording.peak.bytes, ..unchanged }
}

/// The changes that serve the last failed request of `device`, the best first; `None` if the trace is too long to try
/// them by default. It checkpoints all modules or the one that holds most.
pub(crate) fn find_best_changes(device: DeviceStudy<'_, '_>) -> Option<Vec<ProgramRow>> {
    let recording = RecordedProgram::by_default(device)?;
    let replayer = ChangeReplayer::new(&recording, device.scope().capacity);
    let served = changes(&recording, checkpoint_by_default).filter_map(|row| replayer.row_if_served(row));
    let useful = served.filter(|row| row.allocated_gain_bytes > 0 || row.reserved_gain_bytes > 0);
    Some(rank_rows(useful.collect(), replayer.peak_reserved()))
}

/// The change to the optimizer's step with which `device`, on which no request failed, reserves least, of those that change
/// its peak; `None` if there is none, or if the trace is too long to replay it by default.
pub(crate) fn best_optimizer_change(device: DeviceStudy<'_, '_>) -> Option<ProgramRow> {
    let recording = RecordedProgram::by_default(device)?;
    let changes = step_by_parameter(&recording).into_iter().chain(fuse_optimizer(&recording));
    let mut changes = changes.filter(|change| change.bytes_at_peak > 0).peekable();
    changes.peek()?;
    let replayer = ChangeReplayer::new(&recording, None);
    changes.map(|change| replayer.replay_row(change)).max_by_key(|row| row.reserved_gain_bytes)
}
