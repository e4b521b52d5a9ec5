//! The summaries of answers about all snapshots of a job.

use super::Summary;
use super::outcome::describe_devices_later;
use super::summary::command_line;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, counted};
use crate::compare::fleet::{FleetWhatIfReport, FleetWhatIfRow};

impl FleetWhatIfReport {
    /// `64 ranks: 3 fail as recorded; expandable_segments:True serves every request`
    pub fn summary(&self) -> Summary {
        let Some(recorded) = self.rows.first() else { return Summary::from_answer("nothing to replay") };
        let failing = recorded.failing_devices;
        let row = if self.devices == self.snapshots { "rank" } else { "device" };
        let start = format!("{}: {} as recorded", counted(self.devices, row), describe_failing(failing));
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
