//! What `oomscope check` is asked.

use std::path::PathBuf;

use clap::Args;

use super::limits::LimitArgs;
use crate::cli::args::{Format, forms, parse_release};

/// Hold snapshots against limits, for CI: exit code 1 and the lines to look at when one does not hold
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope check --max-ooms 0 --max-gap-ratio 30% snapshot.pickle
  oomscope check --print-config > oomscope.toml       then edit: the limits of your job
  oomscope check ranks/                               64 ranks, limits of oomscope.toml
  oomscope check --save-baseline memory-baseline.json snapshot.pickle
  oomscope check --baseline memory-baseline.json --max-growth-ratio 5% snapshot.pickle
  oomscope check --format github snapshot.pickle      annotations in GitHub Actions

Growth compares peaks replayed from an empty pool: what ran before in the same process, and what it left \
cached, does not count. A limit on something that the file cannot tell (a peak, without a recorded \
history) does not hold.

Exit codes: 0 every limit holds; 1 one does not; 2 wrong usage, or a file that cannot be read.")]
pub(in crate::cli) struct Check {
    /// Snapshots: files (.pickle, .pkl, .json, each also .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required_unless_present = "print_config", value_name = "SNAPSHOT")]
    pub(super) snapshots: Vec<PathBuf>,

    /// Compare with a snapshot, a directory of them, or what --save-baseline or --format json wrote
    #[arg(long, value_name = "PATH", help_heading = "Growth")]
    pub(super) baseline: Option<PathBuf>,

    /// Write the peaks of the snapshots to FILE, to compare with later, and check nothing
    #[arg(
        long,
        value_name = "FILE.json",
        value_parser = json_file,
        help_heading = "Growth",
        conflicts_with_all = ["LimitArgs", "baseline", "config", "format", "output"]
    )]
    pub(super) save_baseline: Option<PathBuf>,

    /// Read limits from FILE instead of the oomscope.toml found from here upwards
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print an oomscope.toml with every key, explained
    #[arg(long)]
    pub(super) print_config: bool,

    /// Only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// The PyTorch release that recorded the snapshots, instead of what their keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,

    /// Form of the result
    #[arg(long, value_parser = forms(&[Format::Github, Format::Junit, Format::Sarif]), default_value = "human")]
    pub(super) format: Format,

    /// Write the result to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

/// The name of a file that is known for a baseline when it is read, and is no snapshot to be overwritten.
fn json_file(text: &str) -> Result<PathBuf, String> {
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let path = Some(PathBuf::from(text)).filter(is_json);
    path.ok_or_else(|| format!("'{text}' does not end in .json"))
}
