//! The order of the changes: the best first.

use std::cmp::Reverse;

use super::report::{ProgramDevice, ProgramRow};
use crate::stacks::frames::FrameReport;
use crate::whatif::sureness::Sureness;

/// A change whose gain is less than 1/20 of the peak does not make the headline ahead of larger gains that are guesses.
const NOTABLE_GAIN_PARTS: u64 = 20;

impl ProgramRow {
    /// Whether the changed program needs less memory, or serves the failed request.
    pub fn is_gain(&self) -> bool {
        let needs_less =
            self.reserved_gain_bytes > 0 || (self.allocated_gain_bytes > 0 && self.reserved_gain_bytes == 0);
        needs_less || self.serves_failed == Some(true)
    }

    /// The change, and where.
    pub fn label(&self) -> String {
        match &self.location.frame {
            Some(frame) => {
                let others = self.other_locations.iter().filter_map(|line| line.frame.as_ref());
                let lines: Vec<String> = std::iter::once(frame).chain(others).map(FrameReport::brief_label).collect();
                format!("{} ({})", self.description, lines.join(", "))
            }
            None => self.description.clone(),
        }
    }
}

impl ProgramDevice {
    /// The change to try first.
    pub fn best(&self) -> Option<&ProgramRow> {
        rank_rows(&self.rows, self.as_recorded.peak_reserved_bytes).into_iter().next()
    }
}

/// The `rows` that gain anything, best first: by the requests that they serve, then notable gains that are no guess
/// before others, then by their gains. `peak` is what the unchanged program reserves.
pub(super) fn rank_rows(rows: &[ProgramRow], peak: u64) -> Vec<&ProgramRow> {
    let is_notable = |row: &ProgramRow| {
        let gain = u64::try_from(row.reserved_gain_bytes);
        row.sure != Sureness::Guess && gain.is_ok_and(|gain| gain >= peak / NOTABLE_GAIN_PARTS)
    };
    let has_gain = |row: &&ProgramRow| row.is_gain() && row.reserved_gain_bytes >= 0;
    let mut rows: Vec<&ProgramRow> = rows.iter().filter(has_gain).collect();
    rows.sort_by_key(|row| {
        let serves = (row.fits, row.serves_failed, row.then.goes_on());
        let is_sure = row.serves_failed == Some(true) && row.sure != Sureness::Guess;
        Reverse((serves, is_sure || is_notable(row), row.reserved_gain_bytes, row.allocated_gain_bytes))
    });
    rows
}
