//! `oomscope analyze`

use anyhow::bail;

use super::args::{Analyze, Format};
use super::exit::{Done, complain};
use super::inputs::{self, Read};
use super::output::Output;
use crate::analysis::{AnalyzeReport, Options, analyze, compare_ranks};
use crate::report;
use crate::units::counted;

/// Reads, analyzes and writes.
pub(super) fn run(args: &Analyze) -> anyhow::Result<Done> {
    let options = Options {
        device: args.device,
        top: args.top,
        window: args.window.window()?,
        capacity: args.capacity,
        minor: args.torch_version,
    };
    let mut inputs = inputs::expand(&args.snapshots)?;
    if let Some(path) = &args.output.output {
        inputs::spare(&mut inputs, path)?;
    }
    let output = Output::open(args.output.output.as_deref())?;
    let read =
        inputs::read_all(&inputs, |snapshot, path, bytes| analyze(snapshot, path, bytes, options));
    let (mut snapshots, mut unreadable, mut skipped) = (Vec::new(), Vec::new(), 0);
    for one in read {
        match one {
            Read::Done(report) => snapshots.push(report),
            Read::Failed(error) => unreadable.push(error),
            Read::Skipped => skipped += 1,
        }
    }
    for file in &unreadable {
        complain(&format!("{}: {}", file.path, file.message));
    }
    if skipped > 0 {
        complain(&format!("{} passed over: not a snapshot", counted(skipped, ".json file")));
    }
    if snapshots.is_empty() {
        if unreadable.is_empty() {
            bail!("no snapshot among the files given");
        }
        return Ok(Done::Partly);
    }
    if let Some(device) = args.device
        && snapshots.iter().all(|s| s.devices.is_empty())
    {
        bail!("{}: no memory and no trace of device {device}", snapshots[0].path);
    }
    let done = if unreadable.is_empty() { Done::Well } else { Done::Partly };
    let ranks = compare_ranks(&snapshots);
    let report = AnalyzeReport { schema: "oomscope/analyze/1", snapshots, ranks, unreadable };
    let text = match args.output.format {
        Format::Human => report::page(&report, output.style()),
        Format::Json => report::json(&report)?,
        Format::Markdown => report::markdown(&report),
    };
    output.write(&text)?;
    Ok(done)
}
