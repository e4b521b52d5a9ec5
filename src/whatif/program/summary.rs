//! What the changes come to, in the lines that the page begins with.

use std::cmp::Reverse;

use super::report::{ProgramDevice, ProgramRow};
use super::change::{ProgramChange, ChangeCertainty};
use crate::base::summary::Summary;
use crate::base::units::size;
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;

/// A change that gains less than this part of the peak is not worth a headline of its own.
const NOTABLE_GAIN_PARTS: u64 = 20;

impl ProgramRow {
    /// Whether the program, so changed, needs less than it does.
    pub fn is_gain(&self) -> bool {
        self.allocated_gain_bytes > 0
            || self.reserved_gain_bytes > 0
            || self.serves_failed == Some(true)
    }

    /// The change, and where.
    pub fn in_short(&self) -> String {
        match &self.location.frame {
            Some(frame) => format!("{}: {}", self.what, frame.short_label()),
            None => self.what.clone(),
        }
    }
}

impl ProgramDevice {
    /// The change to begin with.
    fn best(&self) -> Option<&ProgramRow> {
        rank_rows(&self.rows, self.as_recorded.peak_reserved_bytes).into_iter().next()
    }
}

/// The `rows` that gain anything, those first that serve most; of them what is surely worth it before what is a guess,
/// where the program as it is reserves so many bytes at its `peak`.
pub(super) fn rank_rows(rows: &[ProgramRow], peak: u64) -> Vec<&ProgramRow> {
    let is_worth = |row: &ProgramRow| {
        let gain = u64::try_from(row.reserved_gain_bytes);
        row.sure != ChangeCertainty::Guess && gain.is_ok_and(|gain| gain >= peak / NOTABLE_GAIN_PARTS)
    };
    let is_better = |row: &&ProgramRow| row.is_gain() && row.reserved_gain_bytes >= 0;
    let mut rows: Vec<&ProgramRow> = rows.iter().filter(is_better).collect();
    rows.sort_by_key(|row| {
        let serves = (row.fits, row.serves_failed);
        Reverse((serves, is_worth(row), row.reserved_gain_bytes, row.allocated_gain_bytes))
    });
    rows
}

/// The device that stands worst: where not all fits, else the one that holds most.
pub(super) fn summarize(devices: &[ProgramDevice]) -> Summary {
    let worst = devices.iter().rev().max_by_key(|device| {
        let plain = &device.as_recorded;
        (plain.fits == Some(false), plain.peak_allocated_bytes)
    });
    let Some(worst) = worst else {
        return Summary::from_answer("no device has a trace: there is nothing to change");
    };
    let (plain, id) = (&worst.as_recorded, worst.device);
    let estimate = if worst.exact { "" } else { " (an estimate: the model leaves the recording)" };
    let who = worst.without.first().map(|line| {
        format!(
            "{}: {} of {} at the peak",
            line.location.label(),
            size(line.bytes_at_peak),
            size(plain.peak_allocated_bytes)
        )
    });
    if worst.lost == Some(LostHistory::RingOfOne) {
        let answer = format!("nothing can be said of a change to the program on device {id}");
        return Summary { who, ..Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne)) };
    }
    let Some(best) = worst.best() else {
        let answer = if worst.rows.is_empty() {
            format!(
                "this recording gives no reason for a change to the program on device {id}: it shows no training \
                 step with an optimizer, no repeated module and nothing left behind"
            )
        } else {
            format!(
                "no change that this recording gives reason for makes the peak on device {id} smaller"
            )
        };
        return Summary { who, ..Summary::from_answer(answer) };
    };
    let answer = format!(
        "{}: {} reserved at the peak on device {id} instead of {}{}{estimate}",
        best.what,
        size(best.peak_reserved_bytes),
        size(plain.peak_reserved_bytes),
        describe_outcome(best, worst)
    );
    let action = match best.sure {
        ChangeCertainty::Guess if best.change == ProgramChange::Checkpoint => {
            "try it, and record a backward pass: none is recorded, and what it would ask for again is a guess"
        }
        ChangeCertainty::Exact => "change it: the replay rests on calls that were recorded, less some of them",
        ChangeCertainty::About => {
            "change it, and record once more: when memory comes back was told from the order of calls"
        }
        ChangeCertainty::Guess => {
            "try it, and record once more: what memory was for, and of which type, is a guess"
        }
    };
    Summary {
        answer,
        who,
        action: Some(action.to_owned()),
        copy: best.location.frame.as_ref().map(FrameReport::file_line),
    }
}

/// What becomes of requests that failed.
fn describe_outcome(row: &ProgramRow, of: &ProgramDevice) -> &'static str {
    match (of.as_recorded.fits, row.fits, row.serves_failed) {
        (Some(false), Some(true), _) if of.ends_in_failure && !of.goes_on => {
            ", and every request is served; what would come next is not recorded"
        }
        (Some(false), Some(true), _) => ", and every request is served",
        (Some(false), _, Some(true)) => {
            ", and the failed request is served, though not all that follow"
        }
        (Some(false), ..) => ", which is not enough",
        _ => "",
    }
}
