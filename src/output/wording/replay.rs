//! The summary of a replay.

use super::Summary;
use super::outcome::{POSTPONES, SET_IT, TRY_IT, compare_failures, outcome_clause};
use super::summary::command_line;
use super::whatif::ESTIMATE;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, size};
use crate::study::LostHistory;
use crate::whatif::{JobOutcome, NOTICEABLE_PARTS, ReplayReport, ReplayedDevice};

impl ReplayReport {
    /// Summarizes a replay by its worst device.
    pub fn summary(&self) -> Summary {
        let summarize = |device: &ReplayedDevice| match &device.recorded {
            Some(recorded) => summarize_what_if(self, device, recorded),
            None => summarize_verification(self, device),
        };
        let summaries = self.devices.iter().map(summarize);
        // `max_by_key` takes the last of equals; the first one is wanted.
        let worst = summaries.rev().max_by_key(|(severity, _)| *severity);
        let nothing = "nothing to replay: no device has memory or a trace";
        worst.map_or_else(|| Summary::from_answer(nothing), |(_, summary)| summary)
    }
}

/// How well the model reproduces the recording of `device`; with its severity.
fn summarize_verification(report: &ReplayReport, device: &ReplayedDevice) -> (u8, Summary) {
    let (id, recorded) = (device.device, device.events.recorded as u64);
    let whatif = command_line("whatif", &report.path);
    match (device.exact, &device.first_divergence) {
        _ if recorded == 0 => (1, Summary::from_answer(format!("device {id} has no trace to replay"))),
        (None, _) => {
            let answer = format!("the single trace entry of device {id} shows no allocator decision to reproduce");
            (2, Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne)))
        }
        (Some(true), _) => {
            let answer = format!(
                "the model reproduces all {} of device {id}; {} reserved at the peak, {} allocated",
                counted(recorded, "recorded entry"),
                size(device.peak_reserved_bytes),
                size(device.peak_allocated_bytes)
            );
            let action = "try other settings: what-ifs of this recording are reliable".to_owned();
            (0, Summary { answer, who: None, variable: None, action: Some(action), copy: whatif })
        }
        (Some(false), divergence) => {
            let at = divergence
                .as_ref()
                .map_or_else(String::new, |divergence| format!(" at entry {}", count(divergence.event as u64)));
            let matched = count(device.events.matched.unwrap_or(0) as u64); // null only in a what-if
            let answer = format!(
                "the model diverges from the recording of device {id}{at}: {matched} of {} reproduced",
                counted(recorded, "entry")
            );
            let action = "treat every what-if of this recording as an estimate".to_owned();
            (3, Summary { answer, who: None, variable: None, action: Some(action), copy: whatif })
        }
    }
}

/// The what-if run of `device`, compared with the `recorded` one; with its severity.
fn summarize_what_if(report: &ReplayReport, device: &ReplayedDevice, recorded: &ReplayedDevice) -> (u8, Summary) {
    let (id, recorded_failures, failures) = (device.device, recorded.ooms.len(), device.ooms.len());
    if device.events.recorded == 0 {
        return (1, Summary::from_answer(format!("device {id} has no trace to replay")));
    }
    let estimate = if recorded.exact == Some(false) { ESTIMATE } else { "" };
    let then = device.then.as_ref();
    let answer = format!(
        "on device {id} {}; {} would be reserved at the peak instead of {}{estimate}",
        describe_what_if(device, recorded),
        size(device.peak_reserved_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let is_less =
        device.peak_reserved_bytes <= recorded.peak_reserved_bytes - recorded.peak_reserved_bytes / NOTICEABLE_PARTS;
    let gains = failures < recorded_failures || is_less;
    let settings = report.settings_string.as_deref().filter(|settings| !settings.is_empty() && gains);
    let (action, copy) = match then {
        Some(JobOutcome::GoesOn { .. }) => {
            (settings.map(|_| SET_IT), settings.map(|settings| shell_assignment(settings, None)))
        }
        Some(JobOutcome::FailsAgain { .. }) => (Some(POSTPONES), command_line("analyze", &report.path)),
        Some(JobOutcome::NotKnown { .. }) => (Some(TRY_IT), command_line("analyze", &report.path)),
        Some(JobOutcome::RequestFails { .. }) | None => {
            (Some("try other settings, and changes of the program"), command_line("whatif", &report.path))
        }
    };
    let severity = if then.is_some_and(JobOutcome::goes_on) { 0 } else { 2 };
    (severity, Summary { answer, who: None, variable: None, action: action.map(str::to_owned), copy })
}

/// What the job does in the what-if of `device`, compared with the `recorded` run.
pub(crate) fn describe_what_if(device: &ReplayedDevice, recorded: &ReplayedDevice) -> String {
    let failures = compare_failures(recorded.ooms.len() as u64, device.ooms.len() as u64);
    match &device.then {
        Some(then @ (JobOutcome::FailsAgain { .. } | JobOutcome::NotKnown { .. })) => {
            format!("the failed request is served, and {}", outcome_clause(then))
        }
        Some(then @ JobOutcome::GoesOn { .. }) if !recorded.ooms.is_empty() => {
            format!("{failures}; {}", outcome_clause(then))
        }
        Some(JobOutcome::GoesOn { .. } | JobOutcome::RequestFails { .. }) | None => failures,
    }
}
