//! The summaries of answers about all snapshots of a job.

use super::Summary;
use super::forecast::describe_devices_later;
use super::replay::describe_outcome;
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted, size};
use crate::compare::fleet::{
    FleetReplayReport, FleetReplayRow, FleetTimelineReport, FleetWhatIfReport, FleetWhatIfRow, SnapshotDevice,
};

/// `rank3.pickle (device 0)`
fn name_device(path: &str, device: u64) -> String {
    format!("{path} (device {device})")
}

fn name(device: &SnapshotDevice) -> String {
    name_device(&device.path, device.device)
}

/// `the only device` or `all 64 devices`
fn all(devices: u64) -> String {
    if devices == 1 { "the only device".to_owned() } else { format!("all {} devices", count(devices)) }
}

impl FleetWhatIfReport {
    /// Summarizes the settings for all devices.
    pub fn summary(&self) -> Summary {
        let Some(recorded) = self.rows.first() else { return Summary::from_answer("nothing to replay") };
        let summary = match (&self.best, recorded.failing_devices) {
            (Some(best), failing) => self.summarize_best(best, recorded, failing),
            (None, 0) => Summary::from_answer(format!(
                "no request fails on {} under the recorded settings, and no setting tried needs noticeably less than the {} \
                 reserved on {}",
                all(self.devices),
                size(recorded.peak_reserved_bytes),
                name(&recorded.worst)
            )),
            (None, failing) => self.summarize_none(failing),
        };
        let inexact = self.inexact_devices;
        let estimate = match inexact {
            0 => String::new(),
            _ => format!(" (an estimate for {}: the model diverges from the recording)", counted(inexact, "device")),
        };
        Summary { answer: format!("{}{estimate}", summary.answer), ..summary }
    }

    fn summarize_best(&self, best: &FleetWhatIfRow, recorded: &FleetWhatIfRow, failing: u64) -> Summary {
        let failed = match failing {
            0 => String::new(),
            _ => {
                format!("; as recorded {} {}", counted(failing, "device"), if failing == 1 { "fails" } else { "fail" })
            }
        };
        let later = describe_devices_later(best.failing_later_devices, best.unknown_later_devices);
        let answer = format!(
            "{} serves every request on {}{failed}; at most {} reserved instead of {}{later}",
            best.settings,
            all(self.devices),
            size(best.peak_reserved_bytes),
            size(recorded.peak_reserved_bytes)
        );
        let action = match best.failing_later_devices {
            0 => "set it for every rank",
            _ => "this only postpones the failure on some devices: see which code holds the memory there",
        };
        let copy = (best.failing_later_devices == 0)
            .then(|| shell_assignment(&best.settings, self.settings_string.as_deref()))
            .or_else(|| command_line("analyze", &best.worst.path));
        Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) }
    }

    fn summarize_none(&self, failing: u64) -> Summary {
        let serves_more = |row: &&FleetWhatIfRow| row.served_devices + failing > self.devices;
        let Some(most) = self.rows.get(1).filter(serves_more) else {
            let answer = format!(
                "no setting tried serves every device: as recorded requests fail on {} of {}, and no setting serves more",
                count(failing),
                count(self.devices)
            );
            return Summary {
                action: Some("see what the worst device needs".to_owned()),
                copy: self.rows.first().and_then(|row| command_line("whatif", &row.worst.path)),
                ..Summary::from_answer(answer)
            };
        };
        let untried = match most.untried_devices {
            0 => String::new(),
            untried => format!("; it was not tried on {}", counted(untried, "device")),
        };
        let answer = format!(
            "no setting tried serves every device: {} serves {} of {}, and requests still fail on {}{untried}",
            most.settings,
            count(most.served_devices),
            count(self.devices),
            match most.failing_devices {
                1 => name(&most.worst),
                n => format!("{}, the worst {}", count(n), name(&most.worst)),
            }
        );
        let copy = command_line("whatif", &most.worst.path);
        Summary { action: Some("see what that device needs".to_owned()), copy, ..Summary::from_answer(answer) }
    }
}

impl FleetReplayReport {
    /// Summarizes the replays by the worst device.
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.rows.first() else { return Summary::from_answer("nothing to replay") };
        let devices = self.rows.len() as u64;
        let diverging = self.rows.iter().filter(|row| row.exact == Some(false)).count() as u64;
        let name = name_device(&worst.path, worst.device);
        let is_what_if = self.mode == "what-if";
        let answer = match diverging {
            _ if is_what_if => summarize_what_if(&self.rows),
            0 => format!("the model reproduces every recorded decision on {}", all(devices)),
            _ => format!(
                "the model diverges from the recording on {} of {}, first {name}: {} of {} reproduced",
                count(diverging),
                counted(devices, "device"),
                count(worst.matched_events.unwrap_or(0)), // null only in a what-if
                counted(worst.recorded_events, "entry")
            ),
        };
        let estimate = match diverging {
            1.. if is_what_if => {
                format!(" (an estimate for {}: the model diverges from the recording)", counted(diverging, "device"))
            }
            _ => String::new(),
        };
        let action = match (diverging, is_what_if) {
            (0, false) => Some("try other settings: what-ifs of these recordings are reliable"),
            (_, false) => Some("treat every what-if of that recording as an estimate"),
            (..) => None,
        };
        let copy = action.and_then(|_| command_line("replay", &worst.path)).filter(|_| diverging > 0);
        Summary { action: action.map(str::to_owned), copy, ..Summary::from_answer(format!("{answer}{estimate}")) }
    }
}

fn summarize_what_if(rows: &[FleetReplayRow]) -> String {
    let failing = |ooms: fn(&FleetReplayRow) -> u64| rows.iter().filter(|row| ooms(row) > 0).count();
    let highest = |bytes: fn(&FleetReplayRow) -> u64| rows.iter().map(bytes).max().unwrap_or(0);
    let requests = |ooms: fn(&FleetReplayRow) -> u64| rows.iter().map(ooms).sum::<u64>();
    let as_usize = |requests: u64| usize::try_from(requests).unwrap_or(usize::MAX);
    let outcome = describe_outcome(as_usize(requests(|row| row.recorded_ooms)), as_usize(requests(|row| row.ooms)));
    let (recorded, now) = (failing(|row| row.recorded_ooms), failing(|row| row.ooms));
    format!(
        "{outcome}; {} of {} fail instead of {}; at most {} reserved instead of {}",
        count(now as u64),
        counted(rows.len() as u64, "device"),
        count(recorded as u64),
        size(highest(|row| row.peak_reserved_bytes)),
        size(highest(|row| row.recorded_peak_reserved_bytes))
    )
}

impl FleetTimelineReport {
    /// Summarizes the timelines by the worst device.
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.rows.first() else { return Summary::from_answer("nothing was recorded") };
        let failing = self.rows.iter().filter(|row| row.oom_count > 0).count() as u64;
        let devices = self.rows.len() as u64;
        let failures = match failing {
            0 => format!("no request failed on {}", all(devices)),
            _ => format!("requests failed on {} of {}", count(failing), counted(devices, "device")),
        };
        let (name, peak) = (name_device(&worst.path, worst.device), size(worst.reserved.bytes));
        let answer = format!("{failures}; {name} is the worst: reserved memory peaks at {peak}");
        let action = "see who held the memory there".to_owned();
        let copy = command_line(&format!("analyze --at {}", if failing > 0 { "failure" } else { "peak" }), &worst.path);
        Summary { action: copy.is_some().then_some(action), copy, ..Summary::from_answer(answer) }
    }
}
