//! `oomscope whatif`

use anyhow::{anyhow, bail};
use clap::Args;

use super::args::{Format, ModelArgs, parse_release, parse_settings};
use super::exit::Exit;
use super::inputs::{self, Input};
use super::lines::write_lines;
use super::output::Output;
use super::progress::Progress;
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study};
use crate::whatif::{Tries, WhatIfOptions, WhatIfReport, compare_settings};

/// Replay it under many settings and changes: does the job go on?
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope whatif snapshot.pickle                    a grid of settings, and changes of the program
  oomscope whatif --capacity 40GiB snapshot.pickle   on a 40 GiB device
  oomscope whatif --set max_split_size_mb:100 --set expandable_segments:True s.pickle
  oomscope whatif --format jsonl ranks/              one line per snapshot as soon as it is done

What helps comes first, then what may help; of these by how far the job gets, settings before changes. Of settings \
that need about the same memory the simplest is first, and a limit on splits last. Each row assumes that the program makes the same requests and frees. No setting needs less than the \
lower bound, the largest amount that the program held at once.

Exit codes: 0 success, even if requests fail; 2 wrong usage or an unreadable file.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
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
    let output = args.model.open()?;
    match inputs.as_slice() {
        _ if args.model.output.format() == Format::Jsonl => write_lines(output, &inputs, |snapshot, path, _| {
            compare(args, &study(args, snapshot, path)?, path, &|_, _| {})
        }),
        [input] => one_snapshot(args, input, output),
        _ => bail!("whatif takes one snapshot; with --format jsonl several, one line each"),
    }
}

fn study<'a>(args: &Whatif, snapshot: &'a Snapshot, path: &str) -> anyhow::Result<Study<'a>> {
    let (device, minor) = (args.model.device, args.torch_version);
    let study = Study::new(snapshot, Scope { device, minor, ..Scope::default() });
    inputs::first_device_with_trace(&study, path)?;
    Ok(study)
}

/// Compares the settings of `args`, or those of the built-in grid, and changes of the program.
fn compare(
    args: &Whatif,
    study: &Study<'_>,
    path: &str,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> anyhow::Result<WhatIfReport> {
    let tries = match () {
        () if args.program => Tries::Program,
        () if args.set.is_empty() => Tries::Both,
        () => Tries::Settings,
    };
    let options = WhatIfOptions { options: &args.set, capacity: args.model.capacity, tries };
    compare_settings(study, path, options, progress).map_err(|error| anyhow!("--set {error}"))
}

fn one_snapshot(args: &Whatif, input: &Input, output: Output) -> anyhow::Result<Exit> {
    let snapshot = inputs::read_one(&input.path)?;
    let study = study(args, &snapshot, &input.name)?;
    let progress = Progress::for_replays();
    let report = compare(args, &study, &input.name, &|done, total| progress.set_done(done, total))?;
    drop(progress);
    output.write_answer(args.model.output.format(), &report, report::whatif)?;
    Ok(Exit::Success)
}
