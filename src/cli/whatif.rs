//! `oomscope whatif`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::args::{Format, ModelArgs, parse_release};
use super::dry_run::{ConfirmArgs, Confirmed, confirm};
use super::exit::Exit;
use super::inputs;
use super::output::Output;
use super::progress::Progress;
use crate::base::input::read_text_file;
use crate::output::report;
use crate::study::{Scope, Study};
use crate::whatif::program::{DEFAULT_LINES, find_program_changes};
use crate::whatif::{Costs, WhatIfOptions, compare_settings};

/// Replay the trace with many settings: failures, peak reserved memory and smallest device of each
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope whatif snapshot.pickle                    a grid of settings
  oomscope whatif --capacity 40GiB snapshot.pickle   on a 40 GiB device
  oomscope whatif --set max_split_size_mb:100 --set expandable_segments:True s.pickle
  oomscope whatif --set expandable_segments:True s.pickle --confirm -- python train.py

The first row of each device has the recorded settings. The others are sorted by failed requests, then by peak \
reserved memory. Each row assumes that the program makes the same requests and frees. No setting needs less than the \
lower bound, the largest amount that the program held at once.

Exit codes: 0 success, even if requests fail; 2 wrong usage or an unreadable file.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Whatif {
    #[command(flatten)]
    model: ModelArgs,

    /// Settings to try instead of the built-in grid; one row per --set
    ///
    /// The syntax is that of PYTORCH_CUDA_ALLOC_CONF. KEY:default resets a recorded option, and `default` resets all.
    #[arg(long, value_name = "KEY:VALUE[,..]")]
    set: Vec<String>,

    /// Try changes of the program instead of settings: one row for each change that the recording suggests
    #[arg(long, conflicts_with_all = ["set", "cost"])]
    program: bool,

    /// Number of settings to list for each device, or of source lines with --program [default: all settings, 10 lines]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Add the time of device calls to each row, from the costs that `oomscope live --calibrate` measured
    #[arg(long, value_name = "FILE")]
    cost: Option<PathBuf>,

    /// PyTorch release that recorded the snapshot [default: inferred from the file]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub(super) fn run(args: &Whatif) -> anyhow::Result<Exit> {
    let path = args.model.snapshot.display().to_string();
    if let Some(written) = &args.model.output.output {
        for input in [Some(&args.model.snapshot), args.cost.as_ref()].into_iter().flatten() {
            inputs::refuse_output_over_input(input, written)?;
        }
    }
    let costs = args.cost.as_deref().map(read_costs).transpose()?;
    let output = Output::open(args.model.output.output.as_deref())?;
    let snapshot = inputs::read_one(&args.model.snapshot)?;
    let (device, minor) = (args.model.device, args.torch_version);
    let study = Study::new(&snapshot, Scope { device, minor, ..Scope::default() });
    inputs::first_device_with_trace(&study, &path)?;
    if args.program {
        let report = find_program_changes(&study, &path, args.model.capacity, args.top.unwrap_or(DEFAULT_LINES));
        output.write_answer(args.model.output.format, &report, report::program)?;
        return Ok(Exit::Success);
    }
    let progress = Progress::for_replays();
    let options =
        WhatIfOptions { options: &args.set, capacity: args.model.capacity, costs: costs.as_ref(), top: args.top };
    let report = compare_settings(&study, &path, options, &|done, total| progress.set_done(done, total))
        .map_err(|error| anyhow!("--set {error}"))?;
    drop(progress);
    let confirm = || confirm(&args.confirm, &args.model.snapshot, &args.set, args.model.capacity);
    let format = args.model.output.format;
    if args.confirm.is_given() && format != Format::Human {
        let confirmed = Confirmed { report: &report, confirmed: confirm()? };
        output.write_answer(format, &confirmed, |confirmed| confirmed.lay_out(report::whatif))?;
        return Ok(Exit::Success);
    }
    output.write_answer(format, &report, report::whatif)?;
    if args.confirm.is_given() {
        confirm()?;
    }
    Ok(Exit::Success)
}

fn read_costs(path: &Path) -> anyhow::Result<Costs> {
    let name = path.display();
    let text = read_text_file(path).with_context(|| format!("{name} cannot be read"))?;
    Costs::parse(&text).map_err(|error| anyhow!("{name} {error}"))
}
