//! The arguments of `oomscope check`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::limits::LimitArgs;
use crate::cli::args::{Format, format_parser, parse_release};
use crate::compare::gate::AllowMissing;

/// Check snapshots against limits, for CI: if a limit fails, exit with 1 and list the source lines responsible
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope check --max-ooms 0 --max-gap-ratio 30% snapshot.pickle
  oomscope check --print-config > oomscope.toml       write a configuration to edit
  oomscope check ranks/                               64 ranks, with the limits of oomscope.toml
  oomscope check --save-baseline memory-baseline.json snapshot.pickle
  oomscope check --baseline memory-baseline.json --max-growth-ratio 5% snapshot.pickle
  oomscope check --format github snapshot.pickle      annotations in GitHub Actions

Growth compares peaks replayed from an empty pool, so the history of the process does not count. A limit fails if the \
file does not have its figure (such as a peak, without a recorded history or after the ring buffer wrapped); \
--allow-missing accepts that.

Exit codes: 0 every limit passed; 1 a limit failed; 2 wrong usage or an unreadable file.")]
pub(in crate::cli) struct Check {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required_unless_present = "print_config", value_name = "SNAPSHOT")]
    pub(super) snapshots: Vec<PathBuf>,

    /// Baseline: a snapshot, a directory of snapshots, or a file from --save-baseline or --format json
    #[arg(long, value_name = "PATH", help_heading = "Growth")]
    pub(super) baseline: Option<PathBuf>,

    /// Write the snapshots' peaks to FILE as a baseline, without a check
    #[arg(
        long,
        value_name = "FILE.json",
        value_parser = parse_json_path,
        help_heading = "Growth",
        conflicts_with_all = ["LimitArgs", "baseline", "config", "format", "output"]
    )]
    pub(super) save_baseline: Option<PathBuf>,

    /// Read limits from FILE [default: oomscope.toml in this directory or the nearest parent]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print an oomscope.toml with every key explained
    #[arg(long)]
    pub(super) print_config: bool,

    /// Accept figures that a file does not have; repeatable
    ///
    /// CODE is that of a limit, such as `ooms`, or of the reason why its figure is missing, such as `history-lost`.
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = PossibleValuesParser::new(AllowMissing::words()), hide_possible_values = true)]
    pub(super) allow_missing: Vec<String>,

    /// Required number of snapshots
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,

    /// Check only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// PyTorch release that recorded the snapshots [default: inferred from the files]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,

    /// Output format
    #[arg(long, value_parser = format_parser(&[Format::Github, Format::Junit, Format::Sarif]), default_value = "human")]
    pub(super) format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

/// A baseline must end in `.json`: it is recognized by that when it is read, and no pickle can be overwritten.
fn parse_json_path(text: &str) -> Result<PathBuf, String> {
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let path = Some(PathBuf::from(text)).filter(is_json);
    path.ok_or_else(|| format!("'{text}' does not end in .json"))
}
