//! The summary of the changes, with which the page begins.

use std::cmp::Reverse;

use super::change::{ChangeCertainty, ProgramChange};
use super::report::{ProgramDevice, ProgramRow};
use crate::base::summary::Summary;
use crate::base::units::size;
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;
use crate::whatif::summary::ESTIMATE;

/// A change whose gain is less than 1/20 of the peak does not make the headline ahead of larger gains that are guesses.
const NOTABLE_GAIN_PARTS: u64 = 20;

impl ProgramRow {
    /// Whether the changed program needs less memory, or serves the failed request.
    pub fn is_gain(&self) -> bool {
        self.allocated_gain_bytes > 0 || self.reserved_gain_bytes > 0 || self.serves_failed == Some(true)
    }

    /// The change, and where.
    pub fn label(&self) -> String {
        match &self.location.frame {
            Some(frame) => format!("{}: {}", self.description, frame.short_label()),
            None => self.description.clone(),
        }
    }
}

impl ProgramDevice {
    /// The change to try first.
    fn best(&self) -> Option<&ProgramRow> {
        rank_rows(&self.rows, self.as_recorded.peak_reserved_bytes).into_iter().next()
    }
}

/// The `rows` that gain anything, best first: by the requests that they serve, then notable gains that are no guess
/// before others, then by their gains. `peak` is what the unchanged program reserves.
pub(super) fn rank_rows(rows: &[ProgramRow], peak: u64) -> Vec<&ProgramRow> {
    let is_notable = |row: &ProgramRow| {
        let gain = u64::try_from(row.reserved_gain_bytes);
        row.sure != ChangeCertainty::Guess && gain.is_ok_and(|gain| gain >= peak / NOTABLE_GAIN_PARTS)
    };
    let has_gain = |row: &&ProgramRow| row.is_gain() && row.reserved_gain_bytes >= 0;
    let mut rows: Vec<&ProgramRow> = rows.iter().filter(has_gain).collect();
    rows.sort_by_key(|row| {
        let serves = (row.fits, row.serves_failed);
        Reverse((serves, is_notable(row), row.reserved_gain_bytes, row.allocated_gain_bytes))
    });
    rows
}

/// Summarizes the worst device: one that the unchanged program does not fit, else the one with the highest peak.
pub(super) fn summarize(devices: &[ProgramDevice]) -> Summary {
    let worst = devices.iter().rev().max_by_key(|device| {
        let baseline = &device.as_recorded;
        (baseline.fits == Some(false), baseline.peak_allocated_bytes)
    });
    let Some(worst) = worst else {
        return Summary::from_answer("nothing to change: no device has a trace");
    };
    let (baseline, id) = (&worst.as_recorded, worst.device);
    let estimate = if worst.exact { "" } else { ESTIMATE };
    let largest_holder = worst.without.first().map(|line| {
        format!(
            "{}: {} of {} at the peak",
            line.location.label(),
            size(line.bytes_at_peak),
            size(baseline.peak_allocated_bytes)
        )
    });
    if worst.lost == Some(LostHistory::RingOfOne) {
        let answer = format!("changes to the program cannot be judged on device {id}");
        return Summary {
            who: largest_holder,
            ..Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne))
        };
    }
    let Some(best) = worst.best() else {
        let answer = if worst.rows.is_empty() {
            format!(
                "this recording suggests no change to the program on device {id}: it shows no training step with an \
                 optimizer, no repeated module and nothing left behind"
            )
        } else {
            format!("no change that this recording suggests lowers the peak on device {id}")
        };
        return Summary { who: largest_holder, ..Summary::from_answer(answer) };
    };
    let answer = format!(
        "{}: {} reserved at the peak on device {id} instead of {}{}{estimate}",
        best.description,
        size(best.peak_reserved_bytes),
        size(baseline.peak_reserved_bytes),
        describe_outcome(best, worst)
    );
    let action = match best.sure {
        ChangeCertainty::Guess if best.change == ProgramChange::Checkpoint => {
            "try it, and record a backward pass: without one, the memory that it would recompute is a guess"
        }
        ChangeCertainty::Exact => "change it: the replay only omits recorded requests or moves frees",
        ChangeCertainty::About => {
            "change it, and record again: the order of the changed calls was inferred from the recording"
        }
        ChangeCertainty::Guess => "try it, and record again: what the memory was for, and its dtype, is a guess",
    };
    Summary {
        answer,
        who: largest_holder,
        action: Some(action.to_owned()),
        copy: best.location.frame.as_ref().map(FrameReport::file_line),
    }
}

/// Describes whether requests that failed as recorded are served.
fn describe_outcome(row: &ProgramRow, device: &ProgramDevice) -> &'static str {
    match (device.as_recorded.fits, row.fits, row.serves_failed) {
        (Some(false), Some(true), _) if device.ends_in_failure && !device.goes_on => {
            ", and every request is served; later requests are not recorded"
        }
        (Some(false), Some(true), _) => ", and every request is served",
        (Some(false), _, Some(true)) => ", and the failed request is served, but not every later one",
        (Some(false), ..) => ", which is not enough",
        _ => "",
    }
}
