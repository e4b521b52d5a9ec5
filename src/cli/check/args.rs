//! What `oomscope check` is asked.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::limits::LimitArgs;
use crate::cli::args::{Format, forms, parse_release};
use crate::compare::gate::AllowMissing;

/// Check snapshots against limits, for CI: exit code 1 and the lines responsible if a limit does not hold
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope check --max-ooms 0 --max-gap-ratio 30% snapshot.pickle
  oomscope check --print-config > oomscope.toml       write a configuration to edit
  oomscope check ranks/                               64 ranks, with the limits of oomscope.toml
  oomscope check --save-baseline memory-baseline.json snapshot.pickle
  oomscope check --baseline memory-baseline.json --max-growth-ratio 5% snapshot.pickle
  oomscope check --format github snapshot.pickle      annotations in GitHub Actions

Growth compares peaks that are replayed from an empty pool, so what ran before in the same process does \
not count. A limit on a figure that the file does not tell (a peak, without a recorded history or with a ring \
buffer that wrapped) does not hold; --allow-missing lets it pass.

Exit codes: 0 every limit holds; 1 one does not; 2 wrong usage, or a file that cannot be read.")]
pub(in crate::cli) struct Check {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required_unless_present = "print_config", value_name = "SNAPSHOT")]
    pub(super) snapshots: Vec<PathBuf>,

    /// Baseline: a snapshot, a directory of snapshots, or a file from --save-baseline or --format json
    #[arg(long, value_name = "PATH", help_heading = "Growth")]
    pub(super) baseline: Option<PathBuf>,

    /// Write the snapshots' peaks to FILE as a baseline, and check nothing
    #[arg(
        long,
        value_name = "FILE.json",
        value_parser = json_file,
        help_heading = "Growth",
        conflicts_with_all = ["LimitArgs", "baseline", "config", "format", "output"]
    )]
    pub(super) save_baseline: Option<PathBuf>,

    /// Read limits from FILE; default: oomscope.toml in this directory or the nearest parent
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print an oomscope.toml with every key explained
    #[arg(long)]
    pub(super) print_config: bool,

    /// Let pass what a file does not tell: the code of a limit (ooms), or of why it is not known
    /// (history-lost); repeatable
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = PossibleValuesParser::new(AllowMissing::words()), hide_possible_values = true)]
    pub(super) allow_missing: Vec<String>,

    /// How many snapshots there must be
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,

    /// Check only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// PyTorch release that recorded the snapshots; default: inferred from the files
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,

    /// Output format
    #[arg(long, value_parser = forms(&[Format::Github, Format::Junit, Format::Sarif]), default_value = "human")]
    pub(super) format: Format,

    /// Write to FILE instead of standard output
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
