//! `oomscope diff`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::args::OutputArgs;
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input, ReadOutcome};
use super::output::Output;
use crate::compare::diff::{ComparedMoment, DiffOptions, DiffReport, File, RanksDiff, diff};
use crate::output::report;

/// Compare two snapshots: the source lines that hold more or less
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope diff before.pickle after.pickle         growth at the peak, by source line
  oomscope diff --at end old.pickle new.pickle
  oomscope diff ranks-before/ ranks-after/         compare ranks by name, the worst in full

Stacks are matched by their frames. Lines that moved are matched by function and order; renamed files and other \
checkouts by function names. `oomscope check --baseline` limits growth.

Exit codes: 0 success; 2 wrong usage or an unreadable file.")]
pub(super) struct Diff {
    /// Snapshot before the change, or a directory of ranks; - for standard input
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// Snapshot after the change, or a directory of ranks; - for standard input
    #[arg(value_name = "AFTER")]
    after: PathBuf,

    /// Position to compare
    #[arg(long, value_enum, default_value_t = AtArg::Peak)]
    at: AtArg,

    /// Compare only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Number of source lines and stacks to list; the rest is summed up
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Show sizes as exact numbers of bytes
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AtArg {
    /// The peak of allocated memory
    Peak,
    /// The end, when the snapshot was taken
    End,
}

pub(super) fn run(args: &Diff) -> anyhow::Result<Exit> {
    let options = DiffOptions {
        device: args.device,
        at: match args.at {
            AtArg::Peak => ComparedMoment::Peak,
            AtArg::End => ComparedMoment::Snapshot,
        },
        top: args.top,
    };
    let paths = [args.before.as_path(), args.after.as_path()];
    if paths == [Path::new("-"); 2] {
        bail!("standard input cannot be both snapshots");
    }
    let (report, exit, output) = match paths.map(Path::is_dir) {
        [true, true] => compare_directories(paths, args.output.output.as_deref(), options)?,
        [false, false] => {
            for path in paths {
                args.output.output.as_ref().map_or(Ok(()), |output| inputs::refuse_output_over_input(path, output))?;
            }
            let output = args.output.open()?.with_exact_sizes(args.bytes);
            (compare_files(paths, options)?, Exit::Success, output)
        }
        [before, _] => {
            let [directory, file] = if before { paths } else { [paths[1], paths[0]] };
            bail!(
                "{}: is a directory and {} is not: compare two snapshots, or two directories of ranks",
                directory.display(),
                file.display()
            );
        }
    };
    output.write_answer(args.output.format(), &report, report::diff)?;
    Ok(exit)
}

fn compare_files(paths: [&Path; 2], options: DiffOptions) -> anyhow::Result<DiffReport> {
    let names = paths.map(|path| path.display().to_string());
    let before = inputs::read_one(paths[0])?;
    let after = inputs::read_one(paths[1])?;
    let report = diff(File { snapshot: &before, path: &names[0] }, File { snapshot: &after, path: &names[1] }, options);
    if let Some(device) = options.device
        && report.devices.is_empty()
    {
        bail!("{} and {}: no memory and no trace of GPU {device}", names[0], names[1]);
    }
    Ok(report)
}

/// Compares the ranks of both directories, and the worst of them in full.
fn compare_directories(
    paths: [&Path; 2],
    output: Option<&Path>,
    options: DiffOptions,
) -> anyhow::Result<(DiffReport, Exit, Output)> {
    let ranks = [inputs::find_ranks(paths[0], output)?, inputs::find_ranks(paths[1], output)?];
    if !ranks[0].keys().any(|name| ranks[1].contains_key(name)) {
        bail!(
            "{} and {} have no rank in common: a rank's file must have the same name in both",
            paths[0].display(),
            paths[1].display()
        );
    }
    let output = Output::open(output)?;
    let only_in = |side: usize, other: usize| -> Vec<String> {
        ranks[side].keys().filter(|name| !ranks[other].contains_key(*name)).cloned().collect()
    };
    let (only_before, only_after) = (only_in(0, 1), only_in(1, 0));
    let [before, mut after] = ranks;
    let pairs = before.into_iter().filter_map(|(name, input)| after.remove(&name).map(|other| (name, [input, other])));
    let (names, pairs): (Vec<String>, Vec<[Input; 2]>) = pairs.unzip();
    // Only the worst rank is shown in full.
    let brief = DiffOptions { top: 0, ..options };
    let read = inputs::read_pairs(&pairs, |[before, after]| {
        let file = |(snapshot, path, _)| File { snapshot, path };
        diff(file(before), file(after), brief)
    });
    let (mut compared, mut unreadable): (Vec<(String, DiffReport)>, _) = (Vec::new(), Vec::new());
    for (name, outcome) in names.iter().zip(read) {
        match outcome {
            ReadOutcome::Read(report) => compared.push((name.clone(), report)),
            ReadOutcome::Unreadable(error) => {
                print_stderr(&format!("{}: {}", error.path, error.message));
                unreadable.push(error);
            }
            ReadOutcome::Skipped => {} // JSON files in the directories that are not snapshots
        }
    }
    let exit = if unreadable.is_empty() { Exit::Success } else { Exit::Unreadable };
    let devices = compared.iter().map(|(name, report)| (name.as_str(), report.devices.as_slice()));
    let rows = RanksDiff::new(devices, only_before, only_after, unreadable);
    let worst = rows.rows.first().and_then(|worst| names.iter().position(|n| *n == worst.name));
    let Some([before, after]) = worst.and_then(|row| pairs.get(row)) else {
        let [before, after] = paths.map(Path::display);
        match options.device {
            Some(device) if !compared.is_empty() => {
                bail!("{before} and {after}: no memory and no trace of GPU {device} in any rank")
            }
            _ => bail!("{before} and {after}: no rank can be compared"),
        }
    };
    let report = compare_files([&before.path, &after.path], options)?;
    let [before, after] = paths.map(|path| path.display().to_string());
    Ok((report.for_ranks(rows, before, after), exit, output))
}
