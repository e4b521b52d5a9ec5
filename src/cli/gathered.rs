//! What was read of several files, as one report: what `analyze`, `report` and the page of `run` answer with.

use anyhow::bail;

use super::exit::{Done, complain};
use super::inputs;
use crate::analysis::{AnalyzeReport, Options, SnapshotReport, Unreadable};
use crate::study::PositionSelector;

/// Tells the files that could not be read, and gathers the others; `None` where nothing else was given.
///
/// # Errors
/// If there was nothing to read, or if no snapshot has the moment or the device that `options` ask for.
pub(super) fn gathered(
    snapshots: Vec<SnapshotReport>,
    unreadable: Vec<Unreadable>,
    options: Options,
) -> anyhow::Result<Option<(AnalyzeReport, Done)>> {
    for file in &unreadable {
        complain(&format!("{}: {}", file.path, file.message));
    }
    if snapshots.is_empty() {
        if unreadable.is_empty() {
            bail!("no snapshot among the files given");
        }
        return Ok(None);
    }
    let done = if unreadable.is_empty() { Done::Well } else { Done::Partly };
    let report = AnalyzeReport::new(snapshots, unreadable, options.top);
    if let Some(asked) = options.at {
        let mut devices = report.snapshots.iter().flat_map(|snapshot| &snapshot.devices);
        if devices.all(|device| device.moment.is_none()) {
            bail!(match asked {
                PositionSelector::Peak => "--at peak: no history was recorded".to_owned(),
                PositionSelector::Failure => "--at failure: no request failed".to_owned(),
                PositionSelector::Entry(entry) => format!("--at {entry}: no trace is that long"),
            });
        }
    }
    if let Some(device) = options.device {
        let snapshots = &report.snapshots;
        let without = snapshots.iter().filter(|s| s.devices.is_empty()).map(|s| &*s.path);
        if let Some(message) = inputs::lacking(without, device) {
            if snapshots.iter().all(|s| s.devices.is_empty()) {
                bail!(message);
            }
            // Beside a table of ranks the notes of those that are not in it are not shown.
            if report.ranks.is_some() {
                complain(&message);
            }
        }
    }
    Ok(Some((report, done)))
}
