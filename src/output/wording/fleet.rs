//! The summaries of answers about all snapshots of a job.

use super::Summary;
use super::outcome::describe_devices_later;
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted};
use crate::compare::fleet::{
    FleetReplayReport, FleetReplayRow, FleetTimelineReport, FleetWhatIfReport, FleetWhatIfRow,
};
use crate::whatif::JobOutcome;

impl FleetWhatIfReport {
    /// `64 ranks: 3 fail as recorded; expandable_segments:True serves every request`
    pub fn summary(&self) -> Summary {
        let Some(recorded) = self.rows.first() else { return Summary::from_answer("nothing to replay") };
        let failing = recorded.failing_devices;
        let start = format!("{}: {} as recorded", counted(self.devices, "rank"), describe_failing(failing));
        if let Some(best) = &self.best {
            let later = describe_devices_later(best.failing_later_devices, best.unknown_later_devices);
            let (action, copy) = match best.failing_later_devices {
                0 => {
                    let assignment = shell_assignment(&best.settings, self.settings_string.as_deref());
                    ("set it for every rank", Some(assignment))
                }
                _ => (
                    "this only postpones the failure on some ranks: see which code holds the memory there",
                    command_line("analyze", &best.worst.path),
                ),
            };
            let answer = format!("{start}; {} serves every request{later}", best.settings);
            return Summary { action: Some(action.to_owned()), copy, ..Summary::from_answer(answer) };
        }
        if failing == 0 {
            return Summary::from_answer(format!("{start}; no setting tried needs noticeably less memory"));
        }
        let serves_more = |row: &&FleetWhatIfRow| row.served_devices + failing > self.devices;
        let most = self.rows.get(1).filter(serves_more);
        let served = most.map_or_else(
            || "none serves more".to_owned(),
            |most| format!("{} serves {} of them", most.settings, count(most.served_devices)),
        );
        Summary {
            action: Some("see what the worst rank needs".to_owned()),
            copy: command_line("whatif", &most.unwrap_or(recorded).worst.path),
            ..Summary::from_answer(format!("{start}; no setting tried serves every rank: {served}"))
        }
    }
}

/// `none fails`, `1 fails`, `3 fail`
fn describe_failing(ranks: u64) -> String {
    match ranks {
        0 => "none fails".to_owned(),
        1 => "1 fails".to_owned(),
        n => format!("{} fail", count(n)),
    }
}

impl FleetReplayReport {
    /// `64 ranks: all reproduced`, or `64 ranks: 3 fail instead of 5`
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.rows.first() else { return Summary::from_answer("nothing to replay") };
        let number = |is_counted: &dyn Fn(&FleetReplayRow) -> bool| {
            self.rows.iter().filter(|row| is_counted(row)).count() as u64
        };
        let ranks = counted(self.rows.len() as u64, "rank");
        let diverging = number(&|row| row.exact == Some(false));
        if self.mode == "what-if" {
            let then = |is: fn(&JobOutcome) -> bool| number(&|row| row.then.as_ref().is_some_and(is));
            let later = describe_devices_later(then(JobOutcome::fails_again), then(JobOutcome::is_not_known));
            let [recorded, now] = [number(&|row| row.recorded_ooms > 0), number(&|row| row.ooms > 0)];
            let estimate = match diverging {
                0 => String::new(),
                n => format!(" (an estimate for {}: the model diverges from the recording)", count(n)),
            };
            let now = describe_failing(now);
            return Summary::from_answer(format!("{ranks}: {now} instead of {}{later}{estimate}", count(recorded)));
        }
        let (result, action) = match diverging {
            0 => ("all reproduced".to_owned(), "try other settings: what-ifs of these recordings are reliable"),
            n => (
                format!("the model diverges from {}", counted(n, "recording")),
                "treat every what-if of that recording as an estimate",
            ),
        };
        Summary {
            action: Some(action.to_owned()),
            copy: command_line("replay", &worst.path).filter(|_| diverging > 0),
            ..Summary::from_answer(format!("{ranks}: {result}"))
        }
    }
}

impl FleetTimelineReport {
    /// `64 ranks: requests failed on 2`
    pub fn summary(&self) -> Summary {
        let Some(worst) = self.rows.first() else { return Summary::from_answer("nothing was recorded") };
        let failing = self.rows.iter().filter(|row| row.oom_count > 0).count() as u64;
        let (result, position) = match failing {
            0 => ("no request failed".to_owned(), "peak"),
            _ => (format!("requests failed on {}", count(failing)), "failure"),
        };
        let copy = command_line(&format!("analyze --at {position}"), &worst.path);
        let action = copy.is_some().then(|| "see who held the memory there".to_owned());
        let answer = format!("{}: {result}", counted(self.rows.len() as u64, "rank"));
        Summary { action, copy, ..Summary::from_answer(answer) }
    }
}
