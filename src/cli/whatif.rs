//! `oomscope whatif`

use anyhow::anyhow;
use clap::Args;

use super::args::{Format, ModelArgs, parse_release, parse_settings};
use super::exit::Exit;
use super::inputs;
use super::lines::write_answers;
use super::progress::Progress;
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::{Tries, WhatIfOptions, WhatIfReport, compare_settings};

/// Replay it under many settings and changes: does the job go on?
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/whatif.txt"))]
pub(super) struct Whatif {
    #[command(flatten)]
    model: ModelArgs,

    /// Settings to try instead of the built-in grid; one row per --set
    ///
    /// The syntax is that of PYTORCH_CUDA_ALLOC_CONF. KEY:default resets a recorded option, and `default` resets all.
    #[arg(long, value_name = "KEY:VALUE[,..]", value_parser = parse_settings)]
    set: Vec<String>,

    /// Try changes of the program only: one row for each change that the recording suggests, however long the trace is
    #[arg(long, conflicts_with = "set")]
    program: bool,

    /// PyTorch release that recorded the snapshot [default: inferred from the file]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,
}

pub(super) fn run(args: &Whatif) -> anyhow::Result<Exit> {
    let mut inputs = args.model.snapshots.inputs(args.model.output.output.as_deref())?;
    inputs::keep_latest(&mut inputs);
    let output = args.model.output.open()?.with_exact_sizes(args.model.bytes);
    let format = args.model.output.format();
    write_answers(("whatif", format), output, &inputs, |snapshot, path| compare(args, snapshot, path), report::whatif)
}

/// Compares the settings of `args`, or those of the built-in grid, and changes of the program.
fn compare(args: &Whatif, snapshot: &Snapshot, path: &str) -> anyhow::Result<WhatIfReport> {
    let (device, minor) = (args.model.device, args.torch_version);
    let study = Study::new(snapshot, Scope { device, minor, ..Scope::default() });
    inputs::first_device_with_trace(&study, path)?;
    let progress = (args.model.output.format() != Format::Jsonl).then(Progress::for_replays);
    let tries = match () {
        () if args.program => Tries::Program,
        () if args.set.is_empty() => Tries::Both,
        () => Tries::Settings,
    };
    let options = WhatIfOptions { options: &args.set, capacity: args.model.capacity, tries };
    let report = compare_settings(&study, path, options, &|done, all| {
        if let Some(progress) = &progress {
            progress.set_done(done, all);
        }
    });
    report.map_err(|error| anyhow!("--set {error}"))
}
