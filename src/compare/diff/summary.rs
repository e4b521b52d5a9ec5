//! The finding of a comparison in one sentence.

use super::lines::LineChange;
use super::options::ComparedMoment;
use super::steps::CommonSteps;
use crate::base::units::{counted, percent, ratio, signed_difference, signed_size, size};

/// The compared position: `at peak`, `at the snapshot`, `after 3 steps`.
pub(super) fn moment(at: ComparedMoment, steps: Option<CommonSteps>) -> String {
    match (at, steps) {
        (ComparedMoment::Peak, _) => "at peak".to_owned(),
        (ComparedMoment::Snapshot, Some(steps)) if steps.before_until.is_some() => {
            format!("after {}", counted(steps.compared_steps, "step"))
        }
        (ComparedMoment::Snapshot, _) => "at the snapshot".to_owned(),
    }
}

/// `grew 1.20 GiB (+14%) to 9.77 GiB`
pub(super) fn growth(before: u64, after: u64) -> String {
    let (verb, sign) = if after > before { ("grew", "+") } else { ("shrank", "-") };
    let by = after.abs_diff(before);
    let share = match before {
        0 => String::new(),
        _ => format!(" ({sign}{})", percent(ratio(by, before))),
    };
    format!("{verb} {}{share} to {}", size(by), size(after))
}

/// Describes the change of allocated memory at `moment`, with the line that contributes most. `lines` are the changed
/// lines, largest change first.
pub(super) fn summary(moment: &str, [before, after]: [u64; 2], lines: &[LineChange]) -> String {
    let by = signed_difference(before, after);
    if by == 0 {
        let more = lines.iter().filter(|line| line.held.delta_bytes > 0).count() as u64;
        let less = lines.iter().filter(|line| line.held.delta_bytes < 0).count() as u64;
        let though = match (more, less) {
            (0, 0) => String::new(),
            _ => format!(
                ", though {} of code {} more and {} less",
                counted(more, "line"),
                if more == 1 { "holds" } else { "hold" },
                crate::base::units::count(less)
            ),
        };
        return format!("allocated {moment} is the same, {}{though}", size(after));
    }
    let first = lines.iter().find(|line| line.held.delta_bytes.signum() == by.signum());
    let most = match first {
        None => String::new(),
        Some(line) => {
            let place = line.location.label();
            let bytes = line.held.delta_bytes;
            if bytes == by {
                format!(", all of it from {place}")
            } else if bytes.unsigned_abs() < by.unsigned_abs() {
                format!(", {} of it from {place}", size(bytes.unsigned_abs()))
            } else {
                let opposite = lines.iter().find(|line| line.held.delta_bytes.signum() == -by.signum());
                let opposite = opposite.map_or_else(String::new, |line| {
                    format!(", {} at {}", signed_size(line.held.delta_bytes), line.location.label())
                });
                format!(", with {} at {place}{opposite}", signed_size(bytes))
            }
        }
    };
    format!("allocated {moment} {}{most}", growth(before, after))
}

/// Describes failed requests, if only one snapshot has them.
pub(super) fn failures([before, after]: [u64; 2]) -> String {
    match (before, after) {
        (0, 1..) => format!("; {} failed after, none before", counted(after, "request")),
        (1.., 0) => format!("; {} failed before, none after", counted(before, "request")),
        _ => String::new(),
    }
}
