//! The changes that do most for a failed request, few enough to be told unasked.

use rayon::prelude::*;

use super::answer::ProgramRow;
use super::recording::Recording;
use super::replayed::Replays;
use super::rows::makers;
use super::summary::best;
use crate::study::DeviceStudy;

/// A trace of more entries is not replayed several times more unasked.
const UNASKED: usize = 500_000;

/// The `most` changes that do most for `device` and serve the last request that failed; `None` of a trace that is too
/// long to try them unasked. Of each kind the best alone, and of the optimizer's state what needs least.
pub(crate) fn best_changes(device: DeviceStudy<'_, '_>, most: usize) -> Option<Vec<ProgramRow>> {
    if device.device().len() > UNASKED {
        return None;
    }
    let recording = Recording::of(device);
    let replays = Replays::of(&recording, device.scope().capacity);
    let unasked = makers(&recording).filter_map(|maker| maker.unasked);
    let changed = unasked.flat_map_iter(|make| make(&recording));
    let needs_less = |row: &ProgramRow| row.allocated_gain_bytes > 0 || row.reserved_gain_bytes > 0;
    let rows = changed.filter_map(|row| replays.row_that_serves(row)).filter(needs_less);
    let rows: Vec<ProgramRow> = rows.collect();
    let mut rows = best(&rows, replays.peak_reserved());
    rows.truncate(most);
    Some(rows.into_iter().cloned().collect())
}
