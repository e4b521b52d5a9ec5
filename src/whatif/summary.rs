//! The summary of a replay, with which its page begins.

use super::reports::{ReplayReport, ReplayedDevice, WhatIfDevice, WhatIfRow};
use crate::allocator::conf::shell_assignment;
use crate::base::summary::{Summary, command_line};
use crate::base::units::{count, counted, size};
use crate::study::LostHistory;

/// Appended to an answer that rests on a model that does not reproduce the recording.
pub(super) const ESTIMATE: &str = " (an estimate: the model diverges from the recording)";

/// Settings that need less than 1/50 more than the best count as equally good, and the simplest of them is named.
const NOTICEABLE_PARTS: u64 = 50;

/// Input of a device's summary, in addition to its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct SummaryContext<'a> {
    pub(super) path: &'a str,
    /// The settings string of the snapshot.
    pub(super) recorded_settings: Option<&'a str>,
    pub(super) lost: Option<LostHistory>,
    /// No allocation is recorded after the last failed request.
    pub(super) ends_at_failure: bool,
}

/// Summarizes the `rows` of `device`, of which the first has the recorded settings; with a severity, by which the
/// worst device is chosen.
pub(super) fn summarize_rows(device: &WhatIfDevice, rows: &[WhatIfRow], context: SummaryContext<'_>) -> (u8, Summary) {
    let id = device.device;
    let Some((recorded, others)) = rows.split_first() else {
        return (0, Summary::from_answer(format!("nothing to replay on device {id}")));
    };
    if context.lost == Some(LostHistory::RingOfOne) {
        let answer = format!("other settings cannot be judged on device {id}");
        return (1, Summary::from_answer(format!("{answer}: {}", LostHistory::RingOfOne)));
    }
    let estimate = if device.exact { "" } else { ESTIMATE };
    let largest_holder = format!(
        "the program: {} live at the peak, the lower bound under any setting; {} reserved as recorded",
        size(device.lower_bound_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let best = best(others);
    let (severity, mut summary) = match (recorded.ooms, best) {
        (0, best) => (0, summarize_all_served(id, recorded, best, context)),
        (_, Some(best)) => (1, summarize_served(device, recorded, best, context)),
        (_, None) => (2, summarize_none_served(device, rows)),
    };
    summary.answer.push_str(estimate);
    (severity, Summary { who: Some(largest_holder), ..summary })
}

/// The best row without a failed request. Settings that keep large blocks from small requests come last, and among
/// settings that need about the same memory the simplest wins. A row that only postpones the failure is chosen if no
/// other row does better.
fn best(rows: &[WhatIfRow]) -> Option<&WhatIfRow> {
    let survives_next_step = |row: &&WhatIfRow| row.ooms == 0 && row.next_step_fails != Some(true);
    let any_survives = rows.iter().any(|row| survives_next_step(&row));
    let candidates = || rows.iter().filter(|row| row.ooms == 0 && (!any_survives || survives_next_step(row)));
    let minimum = candidates().map(|row| row.peak_reserved_bytes).min()?;
    let threshold = minimum.saturating_add(minimum / NOTICEABLE_PARTS);
    candidates().min_by_key(|row| {
        let limits_splits = row.settings.contains("max_split_size_mb");
        let options = row.settings.matches(',').count();
        (limits_splits, row.peak_reserved_bytes > threshold, options, row.peak_reserved_bytes)
    })
}

/// The summary if no request fails under the recorded settings.
fn summarize_all_served(
    id: u64,
    recorded: &WhatIfRow,
    best: Option<&WhatIfRow>,
    context: SummaryContext<'_>,
) -> Summary {
    let peak = recorded.peak_reserved_bytes;
    let noticeable = peak / NOTICEABLE_PARTS;
    let saving = best.filter(|best| best.peak_reserved_bytes.saturating_add(noticeable) < peak);
    match saving {
        None => Summary::from_answer(format!(
            "no request fails on device {id} as recorded, and no setting tried needs noticeably less than the {} \
             reserved",
            size(peak)
        )),
        Some(best) => Summary {
            answer: format!(
                "no request fails on device {id} as recorded; {} would reserve {} at its peak instead of {}",
                best.settings,
                size(best.peak_reserved_bytes),
                size(peak)
            ),
            who: None,
            action: Some(format!("set it to reserve {} less", size(peak - best.peak_reserved_bytes))),
            copy: Some(shell_assignment(&best.settings, context.recorded_settings)),
        },
    }
}

/// The summary if `best` serves requests that fail under the recorded settings.
fn summarize_served(
    device: &WhatIfDevice,
    recorded: &WhatIfRow,
    best: &WhatIfRow,
    context: SummaryContext<'_>,
) -> Summary {
    let failed = match recorded.ooms {
        1 => "the failed request".to_owned(),
        n => format!("all requests, {} of which failed as recorded", count(n as u64)),
    };
    let needed = best.smallest_capacity_bytes;
    let headroom =
        device.capacity_bytes.zip(needed).and_then(|(capacity, needed_bytes)| capacity.checked_sub(needed_bytes));
    let only_postpones = best.next_step_fails == Some(true);
    let (action, copy) = match headroom {
        _ if only_postpones => {
            ("this only postpones the failure: see which code holds the memory", command_line("analyze", context.path))
        }
        Some(bytes) if context.ends_at_failure && is_negligible(bytes, device) => (
            "this leaves almost no headroom after the failed request: see whether the next step would fit",
            command_line("analyze", context.path),
        ),
        _ => ("set it", Some(shell_assignment(&best.settings, context.recorded_settings))),
    };
    let caveat = match context.ends_at_failure {
        _ if only_postpones => "; one more step like the last one would fail",
        true => "; later requests are not recorded",
        false => "",
    };
    let headroom_text = headroom.map(|bytes| format!("; {} headroom", size(bytes))).unwrap_or_default();
    let (setting, id) = (&best.settings, device.device);
    Summary {
        answer: format!("{setting} serves {failed} on device {id}{headroom_text}{caveat}"),
        who: None,
        action: Some(action.to_owned()),
        copy,
    }
}

fn is_negligible(bytes: u64, device: &WhatIfDevice) -> bool {
    bytes < device.capacity_bytes.unwrap_or(0) / NOTICEABLE_PARTS
}

fn summarize_none_served(device: &WhatIfDevice, rows: &[WhatIfRow]) -> Summary {
    let fewest = rows.iter().map(|row| row.ooms).min().unwrap_or(0) as u64;
    let tried = match rows.len() {
        1 => "no other setting could be tried; under the recorded settings".to_owned(),
        _ => "no setting tried serves every request:".to_owned(),
    };
    let fails = if fewest == 1 { "fails" } else { "fail" };
    Summary {
        answer: format!("{tried} at least {} {fails} on device {}", counted(fewest, "request"), device.device),
        action: Some(format!("it takes {}", describe_requirement(device, rows.iter()))),
        ..Summary::default()
    }
}

/// Describes what the program would need, if a request fails in each of the `rows` of `device`.
pub fn describe_requirement<'a>(device: &WhatIfDevice, rows: impl Iterator<Item = &'a WhatIfRow>) -> String {
    let capacity = device.capacity_bytes.unwrap_or(u64::MAX);
    if device.lower_bound_bytes > capacity {
        return "a smaller program or a larger device; no setting helps, because live memory alone exceeds the device"
            .to_owned();
    }
    if device.reserved_before_bytes > capacity {
        return "a recording from the program's start: more was reserved before this recording began than the \
                device has"
            .to_owned();
    }
    match rows.filter_map(|row| row.smallest_capacity_bytes).min() {
        Some(smallest) => format!("a device with {} available", size(smallest)),
        None => "other settings: under these, no device is large enough".to_owned(),
    }
}

/// Summarizes a replay by its worst device.
pub(super) fn summarize_replay(report: &ReplayReport) -> Summary {
    let summarize = |device: &ReplayedDevice| match &device.recorded {
        Some(recorded) => summarize_what_if(report, device, recorded),
        None => summarize_verification(report, device),
    };
    let summaries = report.devices.iter().map(summarize);
    // `max_by_key` takes the last of equals; the first one is wanted.
    let worst = summaries.rev().max_by_key(|(severity, _)| *severity);
    let nothing = "nothing to replay: no device has memory or a trace";
    worst.map_or_else(|| Summary::from_answer(nothing), |(_, summary)| summary)
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
            (0, Summary { answer, who: None, action: Some(action), copy: whatif })
        }
        (Some(false), divergence) => {
            let at = divergence
                .as_ref()
                .map_or_else(String::new, |divergence| format!(" at entry {}", count(divergence.event as u64)));
            let matched = count(device.events.matched.unwrap_or(0) as u64);
            let answer = format!(
                "the model diverges from the recording of device {id}{at}: {matched} of {} reproduced",
                counted(recorded, "entry")
            );
            let action = "treat every what-if of this recording as an estimate".to_owned();
            (3, Summary { answer, who: None, action: Some(action), copy: whatif })
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
    (if failures > 0 { 2 } else { 0 }, Summary { answer, who: None, action, copy })
}

/// Compares the number of failed requests, such as `no request fails; 3 failed as recorded`.
pub fn describe_outcome(recorded: usize, predicted: usize) -> String {
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
