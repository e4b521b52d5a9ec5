//! `oomscope replay`

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{anyhow, bail};
use clap::Args;

use super::args::{ModelArgs, parse_release, parse_settings};
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::lines::write_answers;
use super::output::Output;
use crate::output::report;
use crate::replay::literal::candidate_releases;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::{Overrides, ReplayReport, replay_with, run_model, verify_study, write_snapshot};

/// Verify the allocator's model on it, or replay it under one change
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/replay.txt"))]
pub(super) struct Replay {
    #[command(flatten)]
    model: ModelArgs,

    /// Settings to replay with, as in PYTORCH_CUDA_ALLOC_CONF; other options stay as recorded
    ///
    /// KEY:default resets a recorded option, and `default` resets all.
    #[arg(long, value_name = "KEY:VALUE[,..]", value_parser = parse_settings)]
    set: Vec<String>,

    /// PyTorch release to replay; a release that cannot have recorded the snapshot makes a what-if
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Write the model's trace and end state to FILE, as a snapshot for memory_viz
    #[arg(long, value_name = "FILE")]
    emit_snapshot: Option<PathBuf>,
}

pub(super) fn run(args: &Replay) -> anyhow::Result<Exit> {
    let format = args.model.output.format();
    let inputs = args.model.snapshots.inputs(args.model.output.output.as_deref())?;
    let output = args.model.output.open()?.with_exact_sizes(args.model.bytes);
    let has_diverged = AtomicBool::new(false);
    let exit = match (&args.emit_snapshot, inputs.as_slice()) {
        (Some(_), [_, _, ..]) => bail!("--emit-snapshot needs one snapshot, not several"),
        (Some(emitted), [input]) => {
            let emit_to = open_emitted(args, input, emitted)?;
            let report = replay(args, &inputs::read_one(&input.path)?, &input.name, Some(emit_to), &has_diverged)?;
            output.write_answer(format, &report, report::replay)?
        }
        _ => write_answers(
            ("replay", format),
            output,
            &inputs,
            |snapshot, path| replay(args, snapshot, path, None, &has_diverged),
            report::replay,
        )?,
    };
    Ok(if exit == Exit::Success && has_diverged.into_inner() { Exit::Failed } else { exit })
}

/// Opens the file for the model's snapshot, which may be neither the `input` nor the result.
fn open_emitted(args: &Replay, input: &Input, emitted: &Path) -> anyhow::Result<Output> {
    inputs::refuse_output_over_input(&input.path, Some(emitted))?;
    if let Some(page) = &args.model.output.output
        && inputs::are_same_file(page, emitted)
    {
        bail!("{}: cannot hold both the result and the snapshot; name two files", page.display());
    }
    Output::open(Some(emitted))
}

/// Replays `snapshot`, and writes the model's own to `emit_to`. Sets `has_diverged` if the model diverges from the
/// recording; not in a what-if.
fn replay(
    args: &Replay,
    snapshot: &Snapshot,
    path: &str,
    emit_to: Option<Output>,
    has_diverged: &AtomicBool,
) -> anyhow::Result<ReplayReport> {
    let possible = candidate_releases(&snapshot.torch_by_keys);
    // A release that cannot have written the file is a what-if.
    let (recorded, other) = match args.torch_version {
        Some(minor) if possible.contains(&minor) => (Some(minor), None),
        other => (None, other),
    };
    let study = Study::new(snapshot, Scope { device: args.model.device, minor: recorded, ..Scope::default() });
    let first = inputs::first_device_with_trace(&study, path)?;
    let overrides = Overrides::for_device(first, &args.set.join(","), args.model.capacity, other)
        .map_err(|error| anyhow!("--set {error}"))?;
    let keep = emit_to.is_some();
    let (report, emitted) = if overrides.is_none() {
        let emitted = if keep { run_model(&study) } else { Vec::new() };
        (verify_study(&study, path), emitted)
    } else {
        replay_with(&study, path, &overrides, keep)
    };
    let diverges = report.devices.iter().any(|device| device.exact == Some(false));
    has_diverged.fetch_or(diverges, Ordering::Relaxed);
    if let Some(file) = emit_to {
        file.write_with(|out| write_snapshot(&study, &overrides, &emitted, out))?;
        if diverges {
            print_stderr("the emitted snapshot shows the model's replay, which diverges from the recording");
        }
    }
    Ok(report)
}
