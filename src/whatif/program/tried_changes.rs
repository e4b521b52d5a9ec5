//! Changes to the program as rows of what was tried.

use super::report::{ProgramDevice, ProgramRow};
use crate::whatif::sureness::Sureness;
use crate::whatif::tried::{TriedKind, TriedOn, TriedRow, mark, saves, sort_tried};

impl TriedOn {
    /// `has_failed`: a request failed as recorded.
    pub(crate) fn change(self, row: &ProgramRow, has_failed: bool) -> TriedRow {
        let sure = if self.is_exact { row.sure } else { Sureness::Estimate };
        let stops_growth = !self.grows || row.goes_on;
        let unchanged = row.peak_reserved_bytes.saturating_add_signed(row.reserved_gain_bytes);
        let unchanged = Some(unchanged).filter(|_| !has_failed);
        TriedRow {
            mark: mark(&row.then, sure, stops_growth && saves(unchanged, row.peak_reserved_bytes)),
            kind: TriedKind::Program,
            what: row.description.clone(),
            then: row.then.clone(),
            peak_reserved_bytes: row.peak_reserved_bytes,
            unchanged_peak_reserved_bytes: unchanged,
            sure,
            location: row.location.frame.is_some().then(|| Box::new(row.location.clone())),
        }
    }
}

impl ProgramDevice {
    /// The changes, the best first.
    pub fn tried(&self) -> Vec<TriedRow> {
        let on = TriedOn { is_exact: self.exact, grows: self.grows };
        let has_failed = !self.as_recorded.then.goes_on();
        let rows = self.rows.iter().map(|row| on.change(row, has_failed));
        sort_tried(rows.collect())
    }
}
