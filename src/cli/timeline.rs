//! `oomscope timeline`

use anyhow::bail;
use clap::Args;

use super::args::{OutputArgs, SnapshotArgs, WindowArgs};
use super::exit::Exit;
use super::lines::write_answers;
use crate::analysis::timeline::{TimelineReport, timeline};
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Window};

/// Maximum number of buckets; charts merge buckets to fit the terminal.
const BUCKETS: usize = 512;

/// Show memory and fragmentation over time, and failures
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/timeline.txt"))]
pub(super) struct Timeline {
    #[command(flatten)]
    snapshots: SnapshotArgs,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    window: WindowArgs,
}

pub(super) fn run(args: &Timeline) -> anyhow::Result<Exit> {
    let inputs = args.snapshots.inputs(args.output.output.as_deref())?;
    let window = args.window.window()?;
    let (output, command) = (args.output.open()?, ("timeline", args.output.format()));
    write_answers(command, output, &inputs, |snapshot, path| follow(args, window, snapshot, path), report::timeline)
}

fn follow(args: &Timeline, window: Window, snapshot: &Snapshot, path: &str) -> anyhow::Result<TimelineReport> {
    let scope = Scope { device: args.device, window, ..Scope::default() };
    let report = timeline(snapshot, path, scope, BUCKETS);
    if report.devices.is_empty() {
        let of_device = args.device.map_or_else(String::new, |device| format!(" of GPU {device}"));
        let part = if window == Window::default() { "" } else { " in the selected part of the trace" };
        bail!(
            "{path}: no trace entry{of_device}{part}, so there is no timeline; `oomscope analyze` shows the snapshot itself"
        );
    }
    Ok(report)
}
