//! The changes that help a failed request most, few enough to show by default.

use rayon::prelude::*;

use super::change_replay::ChangeReplayer;
use super::find_changes::{finders, is_tried_by_default};
use super::foreach::step_by_parameter;
use super::optimizer::fuse_optimizer;
use super::recorded_program::RecordedProgram;
use super::report::ProgramRow;
use super::summary::rank_rows;
use crate::study::DeviceStudy;

/// The changes that serve the last failed request of `device`, the best first; `None` if the trace is too long to try
/// them by default. It checkpoints all modules or the one that holds most.
pub(crate) fn find_best_changes(device: DeviceStudy<'_, '_>) -> Option<Vec<ProgramRow>> {
    if !is_tried_by_default(device) {
        return None;
    }
    let recording = RecordedProgram::from_device(device);
    let replayer = ChangeReplayer::new(&recording, device.scope().capacity);
    let changes = finders(&recording).flat_map_iter(|finder| (finder.find_by_default)(&recording));
    let needs_less = |row: &ProgramRow| row.allocated_gain_bytes > 0 || row.reserved_gain_bytes > 0;
    let rows = changes.filter_map(|row| replayer.row_if_served(row)).filter(needs_less);
    let rows: Vec<ProgramRow> = rows.collect();
    Some(rank_rows(&rows, replayer.peak_reserved()).into_iter().cloned().collect())
}

/// The change to the optimizer's step with which `device`, on which no request failed, reserves least, of those that change
/// its peak; `None` if there is none, or if the trace is too long to replay it by default.
pub(crate) fn best_optimizer_change(device: DeviceStudy<'_, '_>) -> Option<ProgramRow> {
    if !is_tried_by_default(device) {
        return None;
    }
    let recording = RecordedProgram::from_device(device);
    let changes = step_by_parameter(&recording).into_iter().chain(fuse_optimizer(&recording));
    let mut changes = changes.filter(|change| change.bytes_at_peak > 0).peekable();
    changes.peek()?;
    let replayer = ChangeReplayer::new(&recording, None);
    changes.map(|change| replayer.replay_row(change)).max_by_key(|row| row.reserved_gain_bytes)
}
