//! What a replay comes to, in the lines that its page begins with.

use super::answer::{ReplayReport, ReplayedDevice, WhatIfDevice, WhatIfRow};
use crate::allocator::conf::environment;
use crate::base::summary::{Summary, command};
use crate::base::units::{count, counted, size};
use crate::study::LostHistory;

/// Settings that need less than this part more than the best are as good, and the simplest of them is named.
const NEARLY: u64 = 50;

/// What there is to know of a device beside its rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// The file's path, as given.
    pub(super) path: &'a str,
    /// The settings string of the file.
    pub(super) recorded: Option<&'a str>,
    /// What is lost of the trace.
    pub(super) lost: Option<LostHistory>,
    /// Whether nothing is recorded after the last failed request.
    pub(super) ends_at_failure: bool,
}

/// What the `rows` of a `device` come to, the recorded settings first; and how bad that is.
pub(super) fn of_rows(
    device: &WhatIfDevice,
    rows: &[WhatIfRow],
    circumstances: Circumstances<'_>,
) -> (u8, Summary) {
    let id = device.device;
    let Some((recorded, others)) = rows.split_first() else {
        return (0, Summary::only(format!("nothing to replay on device {id}")));
    };
    if circumstances.lost == Some(LostHistory::RingOfOne) {
        let answer = format!("nothing can be said of other settings on device {id}");
        return (1, Summary::only(format!("{answer}: {}", LostHistory::RingOfOne)));
    }
    let estimate = if device.exact { "" } else { " (an estimate: the model leaves the recording)" };
    let who = format!(
        "the program: {} live at once, and no setting needs less; as recorded {} is reserved",
        size(device.lower_bound_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let best = best(others);
    let (severity, mut summary) = match (recorded.ooms, best) {
        (0, best) => (0, all_served(id, recorded, best, circumstances)),
        (_, Some(best)) => (1, serves(device, recorded, best, circumstances)),
        (_, None) => (2, none_serves(device, rows)),
    };
    summary.answer.push_str(estimate);
    (severity, Summary { who: Some(who), ..summary })
}

/// Of the rows under which no request fails the one to name: settings that cut large blocks off from small requests
/// come last, and of those that need about the same the simplest is best. What only postpones the failure is named
/// where nothing does more.
fn best(rows: &[WhatIfRow]) -> Option<&WhatIfRow> {
    let lasts = |row: &&WhatIfRow| row.ooms == 0 && row.next_step_fails != Some(true);
    let some_last = rows.iter().any(|row| lasts(&row));
    let served = || rows.iter().filter(|row| row.ooms == 0 && (!some_last || lasts(row)));
    let least = served().map(|row| row.peak_reserved_bytes).min()?;
    let enough = least.saturating_add(least / NEARLY);
    served().min_by_key(|row| {
        let splits = row.settings.contains("max_split_size_mb");
        let options = row.settings.matches(',').count();
        (splits, row.peak_reserved_bytes > enough, options, row.peak_reserved_bytes)
    })
}

/// Where no request fails under the recorded settings.
fn all_served(
    id: u64,
    recorded: &WhatIfRow,
    best: Option<&WhatIfRow>,
    of: Circumstances<'_>,
) -> Summary {
    let peak = recorded.peak_reserved_bytes;
    let noticeable = peak / NEARLY;
    let saving = best.filter(|best| best.peak_reserved_bytes.saturating_add(noticeable) < peak);
    match saving {
        None => Summary::only(format!(
            "no request fails on device {id} as recorded, and no setting that was tried needs noticeably less than \
             the {} reserved",
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
            action: Some(format!("to need {} less, set it", size(peak - best.peak_reserved_bytes))),
            copy: Some(environment(&best.settings, of.recorded)),
        },
    }
}

/// Where `best` serves what the recorded settings do not.
fn serves(
    device: &WhatIfDevice,
    recorded: &WhatIfRow,
    best: &WhatIfRow,
    of: Circumstances<'_>,
) -> Summary {
    let failed = match recorded.ooms {
        1 => "the failed request".to_owned(),
        n => format!("all requests, of which {} failed", count(n as u64)),
    };
    let least = best.smallest_capacity_bytes;
    let spare = device.capacity_bytes.zip(least).and_then(|(has, needs)| has.checked_sub(needs));
    let only_later = best.next_step_fails == Some(true);
    let (action, copy) = match spare {
        _ if only_later => (
            "that only postpones the failure: see what the program holds",
            command("analyze", of.path),
        ),
        Some(bytes) if of.ends_at_failure && is_little(bytes, device) => (
            "that leaves next to nothing for what comes after the failure: see whether the next step would fit",
            command("analyze", of.path),
        ),
        _ => ("set it", Some(environment(&best.settings, of.recorded))),
    };
    let after = match of.ends_at_failure {
        _ if only_later => "; one more step like the last fails",
        true => "; what would come after it is not recorded",
        false => "",
    };
    let spare = spare.map(|spare| format!("; {} to spare", size(spare))).unwrap_or_default();
    let (setting, id) = (&best.settings, device.device);
    Summary {
        answer: format!("{setting} serves {failed} on device {id}{spare}{after}"),
        who: None,
        action: Some(action.to_owned()),
        copy,
    }
}

/// Whether `bytes` are next to nothing on `device`.
fn is_little(bytes: u64, device: &WhatIfDevice) -> bool {
    bytes < device.capacity_bytes.unwrap_or(0) / NEARLY
}

fn none_serves(device: &WhatIfDevice, rows: &[WhatIfRow]) -> Summary {
    let fewest = rows.iter().map(|row| row.ooms).min().unwrap_or(0) as u64;
    let tried = match rows.len() {
        1 => "no other setting could be tried, and under the recorded ones".to_owned(),
        _ => "no setting that was tried serves every request:".to_owned(),
    };
    let fails = if fewest == 1 { "fails" } else { "fail" };
    Summary {
        answer: format!(
            "{tried} at least {} {fails} on device {}",
            counted(fewest, "request"),
            device.device
        ),
        action: Some(format!("it takes {}", needed(device, rows.iter()))),
        ..Summary::default()
    }
}

/// What it would take, where every one of the `rows` of `device` fails.
pub fn needed<'a>(device: &WhatIfDevice, rows: impl Iterator<Item = &'a WhatIfRow>) -> String {
    let capacity = device.capacity_bytes.unwrap_or(u64::MAX);
    if device.lower_bound_bytes > capacity {
        return "a smaller program or a larger device, and no setting: live memory alone is more than the device"
            .to_owned();
    }
    if device.reserved_before_bytes > capacity {
        return "a recording from the program's start, to tell whether less would be enough: more was reserved \
                before this one than the device has"
            .to_owned();
    }
    match rows.filter_map(|row| row.smallest_capacity_bytes).min() {
        Some(smallest) => format!("a device with {} within reach", size(smallest)),
        None => "other settings: under these no device is large enough".to_owned(),
    }
}

/// What a replay comes to: the device that stands worst.
pub(super) fn of_replay(report: &ReplayReport) -> Summary {
    let told = |device: &ReplayedDevice| match &device.recorded {
        Some(recorded) => changed(report, device, recorded),
        None => verified(report, device),
    };
    let each = report.devices.iter().map(told);
    // The first of equals.
    let worst = each.rev().max_by_key(|(severity, _)| *severity);
    let nothing = "no device has memory or a trace: there is nothing to replay";
    worst.map_or_else(|| Summary::only(nothing), |(_, summary)| summary)
}

/// The model held against the recording of `device`.
fn verified(report: &ReplayReport, device: &ReplayedDevice) -> (u8, Summary) {
    let (id, recorded) = (device.device, device.events.recorded as u64);
    let whatif = command("whatif", &report.path);
    match (device.exact, &device.first_divergence) {
        _ if recorded == 0 => (1, Summary::only(format!("device {id} has no trace to replay"))),
        (None, _) => {
            let answer = format!("one entry of device {id} shows no decision to reproduce");
            (2, Summary::only(format!("{answer}: {}", LostHistory::RingOfOne)))
        }
        (Some(true), _) => {
            let answer = format!(
                "the model reproduces all {} of device {id}; {} reserved at the peak, {} allocated",
                counted(recorded, "recorded entry"),
                size(device.peak_reserved_bytes),
                size(device.peak_allocated_bytes)
            );
            let action =
                "try other settings: what-ifs of this recording can be relied on".to_owned();
            (0, Summary { answer, who: None, action: Some(action), copy: whatif })
        }
        (Some(false), divergence) => {
            let at = divergence.as_ref().map_or_else(String::new, |divergence| {
                format!(" at entry {}", count(divergence.event as u64))
            });
            let matched = count(device.events.matched.unwrap_or(0) as u64);
            let answer = format!(
                "the model diverges from the recording of device {id}{at}: {matched} of {} reproduced",
                counted(recorded, "entry")
            );
            let action = "take every what-if of it for an estimate".to_owned();
            (3, Summary { answer, who: None, action: Some(action), copy: whatif })
        }
    }
}

/// A what-if of `device`, beside what was `recorded`.
fn changed(
    report: &ReplayReport,
    device: &ReplayedDevice,
    recorded: &ReplayedDevice,
) -> (u8, Summary) {
    let (id, was, fail) = (device.device, recorded.ooms.len(), device.ooms.len());
    if device.events.recorded == 0 {
        return (1, Summary::only(format!("device {id} has no trace to replay")));
    }
    let estimate = if recorded.exact == Some(false) {
        " (an estimate: the model leaves the recording)"
    } else {
        ""
    };
    let answer = format!(
        "on device {id} {}; {} would be reserved at the peak instead of {}{estimate}",
        outcome(was, fail),
        size(device.peak_reserved_bytes),
        size(recorded.peak_reserved_bytes)
    );
    let set = report.settings_string.as_deref().filter(|settings| !settings.is_empty());
    let helps = fail < was || device.peak_reserved_bytes < recorded.peak_reserved_bytes;
    let copy = set.filter(|_| fail == 0 && helps).map(|settings| environment(settings, None));
    let action = match (fail, &copy) {
        (0, Some(_)) => Some("set it in the environment of the job".to_owned()),
        (0, None) => None,
        _ => Some("try many settings at once".to_owned()),
    };
    let copy = if fail > 0 { command("whatif", &report.path) } else { copy };
    (if fail > 0 { 2 } else { 0 }, Summary { answer, who: None, action, copy })
}

/// `no request fails; 3 did`, of so many that failed and that fail.
pub fn outcome(was: usize, fail: usize) -> String {
    let failing = match fail {
        1 => "1 request fails".to_owned(),
        n => format!("{} requests fail", count(n as u64)),
    };
    match (was, fail) {
        (0, 0) => "no request fails, as before".to_owned(),
        (_, 0) => format!("no request fails; {} did", count(was as u64)),
        (0, _) => format!("{failing}; none did"),
        (_, _) => format!("{failing}; {} did", count(was as u64)),
    }
}
