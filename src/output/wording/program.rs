//! The summary of changes to the program.

use super::Summary;
use super::whatif::describe_tried;
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;
use crate::whatif::Sureness;
use crate::whatif::program::{ProgramChange, ProgramReport};

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
        let id = worst.device;
        if worst.lost == Some(LostHistory::RingOfOne) {
            return Summary::from_ring_of_one(id);
        }
        let answer = describe_tried(&worst.tried(), worst.exact).unwrap_or_else(|| {
            format!(
                "this recording suggests no change to the program on GPU {id}: it shows no training step with an \
                 optimizer, no repeated module and nothing left behind"
            )
        });
        let Some(best) = worst.best() else { return Summary::from_answer(answer) };
        let action = match best.sure {
            Sureness::Estimate if best.change == ProgramChange::Checkpoint => {
                "try it, and record a backward pass: without one, the memory that it would recompute is a guess"
            }
            Sureness::Confirmed | Sureness::Checked => {
                "change it: the replay only omits recorded requests or moves frees"
            }
            Sureness::Should => {
                "change it, and record again: the order of the changed calls was inferred from the recording"
            }
            Sureness::Estimate => "try it, and record again: what the memory was for, and its dtype, is a guess",
        };
        let copy = best.location.frame.as_ref().map(FrameReport::file_line);
        Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) }
    }
}
