//! The summary of a comparison of settings.

use super::Summary;
use super::outcome::{POSTPONES, SET_IT, TRY_IT, outcome_clause};
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, size};
use crate::stacks::frames::FrameReport;
use crate::study::LostHistory;
use crate::whatif::{
    JobOutcome, NOTICEABLE_PARTS, Requirement, TriedKind, TriedMark, TriedRow, WhatIfDevice, WhatIfReport, WhatIfRow,
};

/// Appended to an answer that rests on a model that does not reproduce the recording.
pub(super) const ESTIMATE: &str = " (an estimate: the model diverges from the recording)";

impl WhatIfReport {
    /// Summarizes the worst device.
    pub fn summary(&self) -> Summary {
        let summaries = self.devices.iter().map(|device| summarize_device(device, self));
        // `max_by_key` takes the last of equals; the first one is wanted.
        let worst = summaries.rev().max_by_key(|(severity, _)| *severity);
        worst.unwrap_or_default().1 // a report has a device
    }
}

/// Summarizes the rows of `device`, of which the first has the recorded settings; with a severity.
fn summarize_device(device: &WhatIfDevice, report: &WhatIfReport) -> (u8, Summary) {
    let (id, verdict) = (device.device, &device.verdict);
    let Some(recorded) = report.rows.iter().find(|row| row.device == id) else {
        return (0, Summary::from_answer(format!("nothing to replay on device {id}")));
    };
    if verdict.lost == Some(LostHistory::RingOfOne) {
        let answer = format!("other settings cannot be judged on device {id}");
        return (1, Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne)));
    }
    let estimate = if device.exact { "" } else { ESTIMATE };
    let largest_holder = format!(
        "the program: {} live at the peak, the lower bound under any setting; {} reserved as recorded",
        size(device.lower_bound_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let change = verdict.best_tried.as_ref().filter(|row| row.kind == TriedKind::Program);
    let (severity, mut summary) = match (recorded.then.goes_on(), change, &verdict.best) {
        (true, change, _) => (0, summarize_all_served(device, recorded, change, report.recorded_settings.as_deref())),
        (false, Some(change), _) => (1, summarize_change(device, change)),
        (false, None, Some(best)) => (1, summarize_served(device, recorded, best, report)),
        (false, None, None) => (2, summarize_none_served(device)),
    };
    summary.answer.push_str(estimate);
    (severity, Summary { who: Some(largest_holder), ..summary })
}

/// The summary if no request fails under the recorded settings; `change` is the best of what was tried.
fn summarize_all_served(
    device: &WhatIfDevice,
    recorded: &WhatIfRow,
    change: Option<&TriedRow>,
    recorded_settings: Option<&str>,
) -> Summary {
    let (id, best) = (device.device, device.verdict.best.as_ref());
    let peak = recorded.peak_reserved_bytes;
    let noticeable = peak / NOTICEABLE_PARTS;
    let needs_no_larger_device =
        |best: &&WhatIfRow| match (best.smallest_capacity_bytes, recorded.smallest_capacity_bytes) {
            (Some(best), Some(recorded)) => best <= recorded,
            (best, _) => best.is_some(),
        };
    let saving = best.filter(|best| best.peak_reserved_bytes.saturating_add(noticeable) < peak);
    let saving = saving.filter(needs_no_larger_device);
    let on = match device.capacity_bytes {
        Some(capacity) => format!("device {id} of {}", size(capacity)),
        None => format!("device {id}"),
    };
    let served = format!("no request fails on {on} under the recorded settings");
    let would_reserve = |what: &str, bytes: u64| {
        format!("{served}; {what} would reserve {} at its peak instead of {}", size(bytes), size(peak))
    };
    match (saving, change.filter(|change| change.mark == TriedMark::Helps)) {
        (Some(best), _) => Summary {
            answer: would_reserve(&best.settings, best.peak_reserved_bytes),
            action: Some(format!("set it to reserve {} less", size(peak - best.peak_reserved_bytes))),
            copy: Some(shell_assignment(&best.settings, recorded_settings)),
            ..Summary::default()
        },
        (None, Some(change)) => Summary {
            answer: would_reserve(&format!("to {}", change.label()), change.peak_reserved_bytes),
            action: Some(change.label()),
            copy: change.file_line(),
            ..Summary::default()
        },
        (None, None) => Summary::from_answer(format!(
            "{served}, and nothing that was tried needs noticeably less than the {} reserved",
            size(peak)
        )),
    }
}

/// The summary if `change` to the program is the best of what was tried for a request that fails.
fn summarize_change(device: &WhatIfDevice, change: &TriedRow) -> Summary {
    let action = match change.mark {
        TriedMark::Helps => change.label(),
        TriedMark::MayHelp | TriedMark::NoHelp => format!("try it, and record again: {}", change.label()),
    };
    Summary {
        answer: format!("{} on device {}: {}", change.label(), device.device, outcome_clause(&change.then)),
        action: Some(action),
        copy: change.file_line(),
        ..Summary::default()
    }
}

/// The summary if `best` serves requests that fail under the recorded settings.
fn summarize_served(device: &WhatIfDevice, recorded: &WhatIfRow, best: &WhatIfRow, report: &WhatIfReport) -> Summary {
    let failed = match (recorded.ooms, best.ooms) {
        (0 | 1, _) => "the failed request".to_owned(),
        (n, 0) => format!("all requests, {} of which failed as recorded", count(n as u64)),
        _ => "the last failed request".to_owned(),
    };
    let (action, copy) = match best.then {
        JobOutcome::GoesOn { .. } => {
            (SET_IT, Some(shell_assignment(&best.settings, report.recorded_settings.as_deref())))
        }
        JobOutcome::NotKnown { .. } => (TRY_IT, command_line("analyze", &report.path)),
        JobOutcome::FailsAgain { .. } | JobOutcome::RequestFails { .. } => {
            (POSTPONES, command_line("analyze", &report.path))
        }
    };
    let (setting, id) = (&best.settings, device.device);
    Summary {
        answer: format!("{setting} serves {failed} on device {id}; {}", outcome_clause(&best.then)),
        action: Some(action.to_owned()),
        copy,
        ..Summary::default()
    }
}

impl TriedRow {
    /// The settings, or the change and its place: `checkpoint each of 8 calls (model.py:44)`.
    pub fn label(&self) -> String {
        match self.location.as_ref().and_then(|location| location.frame.as_ref()) {
            Some(frame) => format!("{} ({})", self.what, frame.brief_label()),
            None => self.what.clone(),
        }
    }

    /// The line to change, to copy.
    fn file_line(&self) -> Option<String> {
        self.location.as_ref()?.frame.as_ref().map(FrameReport::file_line)
    }
}

fn summarize_none_served(device: &WhatIfDevice) -> Summary {
    let fewest = device.verdict.fewest_ooms as u64;
    let tried = match device.verdict.rows {
        1 => "no other setting could be tried; under the recorded settings".to_owned(),
        _ => "no setting tried serves every request:".to_owned(),
    };
    let fails = if fewest == 1 { "fails" } else { "fail" };
    Summary {
        answer: format!("{tried} at least {} {fails} on device {}", counted(fewest, "request"), device.device),
        action: Some(format!("it takes {}", describe_requirement(device.verdict.requirement))),
        ..Summary::default()
    }
}

/// Describes what the program would need, if a request fails under every setting.
fn describe_requirement(requirement: Requirement) -> String {
    match requirement {
        Requirement::LessMemory => {
            "a smaller program or a larger device; no setting helps, because live memory alone exceeds the device"
                .to_owned()
        }
        Requirement::EarlierRecording => {
            "a recording from the program's start: more was reserved before this recording began than the device has"
                .to_owned()
        }
        Requirement::Capacity(smallest) => format!("a device with {} available", size(smallest)),
        Requirement::OtherSettings => "other settings: under these, no device is large enough".to_owned(),
    }
}
