//! `oomscope whatif`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::args::{Model, parse_release};
use super::exit::Done;
use super::inputs;
use super::output::Output;
use super::progress::Progress;
use crate::output::report;
use crate::study::{Scope, Study};
use crate::whatif::program::find_program_changes;
use crate::whatif::{Costs, WhatIfOptions, compare_settings};

/// Replay the trace under many settings: failures, peak reserved memory and smallest device of each
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope whatif snapshot.pickle                    a grid of settings
  oomscope whatif --capacity 40GiB snapshot.pickle   on a 40 GiB device
  oomscope whatif --set max_split_size_mb:100 --set expandable_segments:True s.pickle

The first row of each device is the recorded settings. The others are sorted by failed requests, then \
by peak reserved memory. Each row assumes that the program makes the same requests and frees. No setting \
needs less than the lower bound: what the program held at once.

Exit codes: 0 done, whether or not requests fail; 2 wrong usage or an unreadable file.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Whatif {
    #[command(flatten)]
    model: Model,

    /// Settings to try instead of the built-in grid, as in PYTORCH_CUDA_ALLOC_CONF; one row per --set.
    /// KEY:default undoes a recorded option, and default all of them
    #[arg(long, value_name = "KEY:VALUE[,..]")]
    set: Vec<String>,

    /// Change the program instead of the settings: one row for each change that the recording gives reason for
    #[arg(long, conflicts_with_all = ["set", "cost"])]
    program: bool,

    /// List only the best N settings of each device, or the N largest lines of the program; default: all settings, 10 lines
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Costs of device calls, from 'oomscope live --calibrate'; adds the time of each row's device calls
    #[arg(long, value_name = "FILE")]
    cost: Option<PathBuf>,

    /// PyTorch release that recorded the snapshot; default: inferred from the file
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,
}

/// Reads, replays and writes.
pub(super) fn run(args: &Whatif) -> anyhow::Result<Done> {
    let path = args.model.snapshot.display().to_string();
    if let Some(written) = &args.model.output.output {
        for read in [Some(&args.model.snapshot), args.cost.as_ref()].into_iter().flatten() {
            inputs::spare_one(read, written)?;
        }
    }
    let costs = args.cost.as_deref().map(read_costs).transpose()?;
    let output = Output::open(args.model.output.output.as_deref())?;
    let snapshot = inputs::read_one(&args.model.snapshot)?;
    let (device, minor) = (args.model.device, args.torch_version);
    let study = Study::new(&snapshot, Scope { device, minor, ..Scope::default() });
    inputs::first_traced(&study, &path)?;
    if args.program {
        let report =
            find_program_changes(&study, &path, args.model.capacity, args.top.unwrap_or(LINES));
        output.write_answer(args.model.output.format, &report, report::program)?;
        return Ok(Done::Well);
    }
    let progress = Progress::of_replays();
    let asked = WhatIfOptions {
        options: &args.set,
        capacity: args.model.capacity,
        costs: costs.as_ref(),
        top: args.top,
    };
    let report = compare_settings(&study, &path, asked, &|done, all| progress.done(done, all))
        .map_err(|error| anyhow!("--set {error}"))?;
    drop(progress);
    output.write_answer(args.model.output.format, &report, report::whatif)?;
    Ok(Done::Well)
}

/// Lines of a program that are left out one at a time.
const LINES: usize = 10;

fn read_costs(path: &Path) -> anyhow::Result<Costs> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    Costs::parse(&text).map_err(|error| anyhow!("{name} {error}"))
}
