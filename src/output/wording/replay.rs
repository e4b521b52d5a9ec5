//! The summary of a replay.

use super::Summary;
use super::outcome::{ESTIMATE, POSTPONES, SET_IT, TRY_IT, describe_outcome, outcome_clause};
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::allocator::device::GpuModel;
use crate::base::units::{count, counted, size};
use crate::whatif::{JobOutcome, ReplayReport, ReplayedDevice, TriedMark, TriedRow, WhyUnknown};

impl ReplayReport {
    /// Summarizes a replay by its worst device.
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.worst() else { return Summary::from_answer("no trace to replay") };
        match (&worst.recorded, &worst.then) {
            (Some(recorded), Some(then)) if recorded.exact.is_some() => self.summarize_what_if(worst, recorded, then),
            _ => self.summarize_verification(worst),
        }
    }

    /// The devices with a trace.
    pub(crate) fn traced(&self) -> impl DoubleEndedIterator<Item = &ReplayedDevice> {
        self.devices.iter().filter(|device| device.events.recorded > 0)
    }

    /// The device that is reproduced worst, or on which the job does not get as far as on others.
    pub(crate) fn worst(&self) -> Option<&ReplayedDevice> {
        let verified = |device: &ReplayedDevice| match device.exact {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        };
        self.traced().min_by_key(|device| (device.then.as_ref().map(JobOutcome::reach), verified(device)))
    }

    /// How well the model reproduces the recording.
    fn summarize_verification(&self, worst: &ReplayedDevice) -> Summary {
        let id = worst.device;
        let (answer, action) = match (worst.exact, &worst.first_divergence) {
            (None, _) => return Summary::from_ring_of_one(id),
            (Some(true), _) => {
                let entries = self.traced().map(|device| device.events.recorded as u64).sum();
                let on = match self.traced().count() as u64 {
                    1 => format!("GPU {id}"),
                    several => counted(several, "GPU"),
                };
                let answer = format!("reproduced: all {} of {on}", counted(entries, "recorded entry"));
                (answer, "try other settings: what-ifs of this recording are reliable")
            }
            (Some(false), divergence) => {
                let at = divergence.as_ref().map(|divergence| format!(" at entry {}", count(divergence.event as u64)));
                let at = at.unwrap_or_default();
                let answer = format!("the model diverges from the recording of GPU {id}{at}");
                (answer, "treat every what-if of this recording as an estimate")
            }
        };
        let copy = command_line("whatif", &self.path);
        Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) }
    }

    /// The outcome of the job in the what-if of `worst`, compared with the `recorded` run.
    fn summarize_what_if(&self, worst: &ReplayedDevice, recorded: &ReplayedDevice, then: &JobOutcome) -> Summary {
        let estimate = if recorded.exact == Some(false) { ESTIMATE } else { "" };
        let is_on_all = then.goes_on() || self.traced().count() == 1;
        let on = if is_on_all { String::new() } else { format!(", on GPU {}", worst.device) };
        let mark = worst.tried.as_ref().map_or(TriedMark::NoHelp, |tried| tried.mark);
        let gains = mark != TriedMark::NoHelp;
        let settings = self.settings_string.as_deref().filter(|settings| !settings.is_empty() && gains);
        let (action, copy) = match then {
            JobOutcome::GoesOn { .. } => {
                let action = if mark == TriedMark::Helps { SET_IT } else { TRY_IT };
                (settings.map(|_| action), settings.map(|settings| shell_assignment(settings, None)))
            }
            JobOutcome::FailsAgain { .. } => (Some(POSTPONES), command_line("analyze", &self.path)),
            JobOutcome::NotKnown { why: WhyUnknown::ServedAsRecorded } => {
                (Some("see why the request failed"), command_line("analyze", &self.path))
            }
            JobOutcome::NotKnown { .. } => (Some(TRY_IT), command_line("analyze", &self.path)),
            JobOutcome::RequestFails { .. } => {
                (Some("try other settings, and changes of the program"), command_line("whatif", &self.path))
            }
        };
        let answer = match (&worst.tried, worst.assumed.capacity_bytes) {
            (None, Some(capacity)) => format!("{}{on}{estimate}", describe_fit(worst, then, capacity)),
            (tried, _) => {
                let then = tried.as_ref().map_or_else(|| describe_outcome(then), TriedRow::describe_then);
                format!("the job then{on}: {then}{estimate}")
            }
        };
        Summary { action: action.map(str::to_owned), copy, ..Summary::from_answer(answer) }
    }
}

/// `yes, it fits 14.5 GiB (t4): 9.55 GiB reserved at its peak, 2.60 GiB headroom`
fn describe_fit(device: &ReplayedDevice, then: &JobOutcome, capacity: u64) -> String {
    let gpu = GpuModel::with_usable_bytes(capacity).map_or_else(String::new, |gpu| format!(" ({})", gpu.name));
    let capacity = size(capacity);
    match then {
        JobOutcome::GoesOn { headroom_bytes, .. } => {
            let headroom = headroom_bytes.map_or_else(String::new, |bytes| format!(", {} headroom", size(bytes)));
            format!(
                "yes, it fits {capacity}{gpu}: {} reserved at its peak{headroom}",
                size(device.figures.peak_reserved_bytes)
            )
        }
        JobOutcome::NotKnown { .. } => format!("not known whether it fits {capacity}{gpu}: {}", outcome_clause(then)),
        _ => format!("no, it does not fit {capacity}{gpu}: {}", outcome_clause(then)),
    }
}
