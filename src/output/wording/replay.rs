//! The summary of a replay.

use super::Summary;
use super::summary::command_line;
use super::whatif::ESTIMATE;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, size};
use crate::study::LostHistory;
use crate::whatif::{ReplayReport, ReplayedDevice};

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
    let (severity, answer, action) = match (device.exact, &device.first_divergence) {
        _ if recorded == 0 => return (0, Summary::from_answer("no trace to replay")),
        (None, _) => {
            let answer = format!("the single trace entry of GPU {id} shows no allocator decision to reproduce");
            return (2, Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne)));
        }
        (Some(true), _) => {
            let entries = report.devices.iter().map(|device| device.events.recorded as u64);
            let traced: Vec<u64> = entries.filter(|entries| *entries > 0).collect();
            let on = match traced.len() as u64 {
                1 => format!("GPU {id}"),
                several => counted(several, "GPU"),
            };
            let answer = format!("reproduced: all {} of {on}", counted(traced.iter().sum(), "recorded entry"));
            (1, answer, "try other settings: what-ifs of this recording are reliable")
        }
        (Some(false), divergence) => {
            let at = divergence
                .as_ref()
                .map_or_else(String::new, |divergence| format!(" at entry {}", count(divergence.event as u64)));
            let answer = format!("the model diverges from the recording of GPU {id}{at}");
            (3, answer, "treat every what-if of this recording as an estimate")
        }
    };
    let copy = command_line("whatif", &report.path);
    (severity, Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) })
}

/// The what-if run of `device`, compared with the `recorded` one; with its severity.
fn summarize_what_if(report: &ReplayReport, device: &ReplayedDevice, recorded: &ReplayedDevice) -> (u8, Summary) {
    let (id, recorded_failures, failures) = (device.device, recorded.ooms.len(), device.ooms.len());
    if device.events.recorded == 0 {
        return (1, Summary::from_answer(format!("device {id} has no trace to replay")));
    }
    let estimate = if recorded.exact == Some(false) { ESTIMATE } else { "" };
    let answer = format!(
        "on device {id} {}; {} would be reserved at the peak instead of {}{estimate}",
        describe_outcome(recorded_failures, failures),
        size(device.peak_reserved_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let settings = report.settings_string.as_deref().filter(|settings| !settings.is_empty());
    let helps = failures < recorded_failures || device.peak_reserved_bytes < recorded.peak_reserved_bytes;
    let copy = settings.filter(|_| failures == 0 && helps).map(|settings| shell_assignment(settings, None));
    let action = match (failures, &copy) {
        (0, Some(_)) => Some("set it in the job's environment".to_owned()),
        (0, None) => None,
        _ => Some("try many settings at once".to_owned()),
    };
    let copy = if failures > 0 { command_line("whatif", &report.path) } else { copy };
    (if failures > 0 { 2 } else { 0 }, Summary { answer, who: None, variable: None, action, copy })
}

/// Compares the number of failed requests, such as `no request fails; 3 failed as recorded`.
pub(crate) fn describe_outcome(recorded: usize, predicted: usize) -> String {
    let predicted_text = match predicted {
        1 => "1 request fails".to_owned(),
        n => format!("{} requests fail", count(n as u64)),
    };
    match (recorded, predicted) {
        (0, 0) => "no request fails, as recorded".to_owned(),
        (_, 0) => format!("no request fails; {} failed as recorded", count(recorded as u64)),
        (0, _) => format!("{predicted_text}; none failed as recorded"),
        (_, _) => format!("{predicted_text}; {} failed as recorded", count(recorded as u64)),
    }
}
