//! The summary of a comparison of settings.

use super::Summary;
use super::forecast::{describe_later, is_negligible};
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, size};
use crate::study::LostHistory;
use crate::whatif::{ForecastVerdict, NOTICEABLE_PARTS, Requirement, WhatIfDevice, WhatIfReport, WhatIfRow};

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
    let (severity, mut summary) = match (recorded.ooms, &verdict.best) {
        (0, _) => (0, summarize_all_served(device, recorded, report.recorded_settings.as_deref())),
        (_, Some(best)) => (1, summarize_served(device, recorded, best, report)),
        (_, None) => (2, summarize_none_served(device)),
    };
    summary.answer.push_str(estimate);
    (severity, Summary { who: Some(largest_holder), ..summary })
}

/// The summary if no request fails under the recorded settings.
fn summarize_all_served(device: &WhatIfDevice, recorded: &WhatIfRow, recorded_settings: Option<&str>) -> Summary {
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
    match saving {
        None => Summary::from_answer(format!(
            "no request fails on {on} under the recorded settings, and no setting tried needs noticeably less than the \
             {} reserved",
            size(peak)
        )),
        Some(best) => Summary {
            answer: format!(
                "no request fails on {on} under the recorded settings; {} would reserve {} at its peak instead of {}",
                best.settings,
                size(best.peak_reserved_bytes),
                size(peak)
            ),
            who: None,
            variable: None,
            action: Some(format!("set it to reserve {} less", size(peak - best.peak_reserved_bytes))),
            copy: Some(shell_assignment(&best.settings, recorded_settings)),
        },
    }
}

/// The summary if `best` serves requests that fail under the recorded settings.
fn summarize_served(device: &WhatIfDevice, recorded: &WhatIfRow, best: &WhatIfRow, report: &WhatIfReport) -> Summary {
    let (path, recorded_settings) = (&report.path, report.recorded_settings.as_deref());
    let failed = match recorded.ooms {
        1 => "the failed request".to_owned(),
        n => format!("all requests, {} of which failed as recorded", count(n as u64)),
    };
    let needed = best.smallest_capacity_bytes;
    let headroom =
        device.capacity_bytes.zip(needed).and_then(|(capacity, needed_bytes)| capacity.checked_sub(needed_bytes));
    let (action, copy) = match headroom {
        _ if matches!(best.forecast, Some(ForecastVerdict::FailsAgain { .. })) => {
            ("this only postpones the failure: see which code holds the memory", command_line("analyze", path))
        }
        _ if best.forecast.is_some() && best.then.goes_on() => {
            ("set it", Some(shell_assignment(&best.settings, recorded_settings)))
        }
        Some(bytes)
            if device.verdict.ends_at_failure
                && device.capacity_bytes.is_some_and(|capacity| is_negligible(bytes, capacity)) =>
        {
            (
                "this leaves almost no headroom after the failed request: see whether the next step would fit",
                command_line("analyze", path),
            )
        }
        _ if best.forecast.is_some() => ("try it, and see which code holds the memory", command_line("analyze", path)),
        _ => ("set it", Some(shell_assignment(&best.settings, recorded_settings))),
    };
    let caveat = match (&best.forecast, device.verdict.ends_at_failure) {
        (Some(forecast), _) => format!("; {}", describe_later(forecast)),
        (None, true) => "; later requests are not recorded".to_owned(),
        (None, false) => String::new(),
    };
    let headroom = headroom.filter(|_| best.forecast.is_none());
    let headroom_text = headroom.map_or_else(String::new, |bytes| format!("; {} headroom", size(bytes)));
    let (setting, id) = (&best.settings, device.device);
    Summary {
        answer: format!("{setting} serves {failed} on device {id}{headroom_text}{caveat}"),
        who: None,
        variable: None,
        action: Some(action.to_owned()),
        copy,
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
pub(crate) fn describe_requirement(requirement: Requirement) -> String {
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
