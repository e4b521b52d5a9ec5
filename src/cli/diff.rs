//! `oomscope diff`

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::args::OutputArgs;
use super::exit::Exit;
use super::inputs::{is_stdin, read_one, refuse_output_over_input, single_snapshot};
use crate::compare::diff::{ComparedMoment, DiffOptions, File, diff};
use crate::output::report;

/// Compare two snapshots: the source lines that hold more or less
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/diff.txt"))]
pub(super) struct Diff {
    /// Snapshot before the change, or its directory; - for standard input
    #[arg(value_name = "BEFORE")]
    before: PathBuf,

    /// Snapshot after the change, or its directory; - for standard input
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
    if [&args.before, &args.after].map(|path| is_stdin(path)) == [true; 2] {
        bail!("standard input cannot be both snapshots");
    }
    let paths = [single_snapshot(&args.before)?, single_snapshot(&args.after)?];
    paths.iter().try_for_each(|path| refuse_output_over_input(path, args.output.output.as_deref()))?;
    let output = args.output.open()?.with_exact_sizes(args.bytes);
    let names = paths.each_ref().map(|path| path.display().to_string());
    let (before, after) = (read_one(&paths[0])?, read_one(&paths[1])?);
    let report = diff(File { snapshot: &before, path: &names[0] }, File { snapshot: &after, path: &names[1] }, options);
    if let Some(device) = options.device.filter(|_| report.devices.is_empty()) {
        bail!("{} and {}: no memory and no trace of GPU {device}", names[0], names[1]);
    }
    output.write_answer(args.output.format(), &report, report::diff)
}
