//! The summary of changes to the program.

use super::Summary;
use super::outcome::outcome_clause;
use super::whatif::ESTIMATE;
use crate::base::units::size;
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;
use crate::whatif::JobOutcome;
use crate::whatif::program::{ChangeCertainty, ProgramChange, ProgramDevice, ProgramReport, ProgramRow};

impl ProgramReport {
    /// Summarizes the worst device: one that the unchanged program does not fit, else the one with the highest peak.
    pub fn summary(&self) -> Summary {
        let worst = self.devices.iter().rev().max_by_key(|device| {
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
        // A guess is no result.
        let start = match (best.sure, baseline.fits) {
            (ChangeCertainty::Guess, Some(false)) => "no change that is certain is enough; a guess: ",
            (ChangeCertainty::Guess, _) => "no change that is certain lowers the peak by 5 % or more; a guess: ",
            _ => "",
        };
        let answer = format!(
            "{start}{}: {} reserved at the peak on device {id} instead of {}{}{estimate}",
            best.description,
            size(best.peak_reserved_bytes),
            size(baseline.peak_reserved_bytes),
            then_clause(best, worst)
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
            variable: None,
            action: Some(action.to_owned()),
            copy: best.location.frame.as_ref().map(FrameReport::file_line),
        }
    }
}

/// The outcome of the job with the change, if requests fail without it.
fn then_clause(row: &ProgramRow, device: &ProgramDevice) -> String {
    match &row.then {
        _ if device.as_recorded.then.goes_on() => String::new(),
        JobOutcome::RequestFails { .. } => ", which is not enough".to_owned(),
        then => format!("; {}", outcome_clause(then)),
    }
}
