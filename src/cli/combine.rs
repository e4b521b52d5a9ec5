//! Combines the analyses of several snapshots into one report, for `analyze`, `report` and the page of `run`.

use anyhow::bail;

use super::exit::{Exit, print_stderr, report_unreadable};
use super::inputs;
use crate::analysis::{AnalyzeReport, Options, SnapshotReport, Unreadable};
use crate::study::PositionSelector;

/// Prints the unreadable files and combines the rest; `None` if all files are unreadable. Fails if there is no file at all,
/// or if no snapshot has the position or the device of `options`.
pub(super) fn combine_snapshots(
    snapshots: Vec<SnapshotReport>,
    unreadable: Vec<Unreadable>,
    options: Options,
) -> anyhow::Result<Option<(AnalyzeReport, Exit)>> {
    let Some(exit) = report_unreadable(&unreadable, snapshots.len())? else { return Ok(None) };
    let report = AnalyzeReport::new(snapshots, unreadable, options.top);
    if let Some(position) = options.at {
        let mut devices = report.snapshots.iter().flat_map(|snapshot| &snapshot.devices);
        if devices.all(|device| device.moment.is_none()) {
            bail!(missing_position(position));
        }
    }
    if let Some(device) = options.scope.device {
        let snapshots = &report.snapshots;
        let without = snapshots.iter().filter(|snapshot| snapshot.devices.is_empty()).map(|snapshot| &*snapshot.path);
        if let Some(message) = inputs::missing_device(without, device) {
            if snapshots.iter().all(|snapshot| snapshot.devices.is_empty()) {
                bail!(message);
            }
            // The table of ranks does not show the warnings of snapshots that it leaves out.
            if report.ranks.is_some() {
                print_stderr(&message);
            }
        }
    }
    Ok(Some((report, exit)))
}

/// The message that no snapshot has `position`.
pub(super) fn missing_position(position: PositionSelector) -> String {
    format!("--at {position}: {}", position.describe_missing())
}
