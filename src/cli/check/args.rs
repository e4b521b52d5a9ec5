//! The arguments of `oomscope check`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use crate::cli::args::{ViewArgs, parse_format_and_file};
use crate::cli::dry_run::MachineArgs;
use crate::compare::gate::{Limit, Limits, words_to_allow};
use crate::study::figures::{Amount, Unit};

/// Check snapshots, or a dry run of a command, against limits
#[derive(Debug, Args)]
#[command(after_help = include_str!("../help/check.txt"))]
pub(in crate::cli) struct Check {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required_unless_present_any = ["print_config", "command"], value_name = "SNAPSHOT")]
    pub(super) snapshots: Vec<PathBuf>,

    /// After `--`, with --gpu: the command to run in a dry run, and its arguments; without --gpu: snapshots
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,

    /// Baseline to compare with: a file that --add or --update wrote
    ///
    /// Growth by more than 1% fails, unless --max-growth or --max-growth-ratio is given.
    #[arg(long, value_name = "FILE.json", help_heading = "Growth")]
    pub(super) baseline: Option<PathBuf>,

    /// Name of the entry in the baseline [default: the command, or the name of the only snapshot or directory]
    #[arg(long, value_name = "NAME", help_heading = "Growth")]
    pub(super) entry: Option<String>,

    /// Write the entry if the baseline lacks it, else compare with it
    #[arg(long, help_heading = "Growth")]
    pub(super) add: bool,

    /// Write the entry: the result becomes the baseline
    #[arg(long, help_heading = "Growth", conflicts_with = "add")]
    pub(super) update: bool,

    /// Read limits from FILE [default: oomscope.toml in this directory or the nearest parent]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print an oomscope.toml with every key explained
    #[arg(long)]
    pub(super) print_config: bool,

    /// Accept figures that a file does not have; repeatable
    ///
    /// CODE is that of a limit, such as `ooms`, of the reason why its figure is missing, such as `history-lost`, a
    /// verdict (`may-fit`, `did-not-finish` or `no-verdict`), or a difference of the baseline: `other-gpu`,
    /// `other-program`, `other-release`.
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = PossibleValuesParser::new(words_to_allow()), hide_possible_values = true)]
    pub(super) allow_missing: Vec<String>,

    /// Required number of ranks [default: that of the recorded job]
    #[arg(long, value_name = "N")]
    pub(super) ranks: Option<usize>,

    /// Check only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// Output format
    #[arg(long, default_value = "human")]
    pub(super) format: CheckFormat,

    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Also write the result to FILE in FORMAT; repeatable
    #[arg(long, value_name = "FORMAT=FILE", value_parser = parse_format_and_file::<CheckFormat>)]
    pub(super) also: Vec<(CheckFormat, PathBuf)>,

    /// Keep the snapshots of the command in DIR [default: oomscope-check-1 or the next free number, if it fails]
    #[arg(long, value_name = "DIR", help_heading = DRY_RUN)]
    pub(super) dir: Option<PathBuf>,

    #[command(flatten, next_help_heading = DRY_RUN)]
    pub(super) machine: MachineArgs,

    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

/// The heading of the options for a command.
const DRY_RUN: &str = "Dry run of a command";

/// The formats of `oomscope check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CheckFormat {
    /// Text for a terminal
    Human,
    /// JSON with stable keys
    Json,
    /// JSON without line breaks
    Jsonl,
    /// Markdown, for a step summary, a comment or an issue
    Markdown,
    /// GitHub Actions annotations on source lines
    Github,
    /// JUnit XML, one test per limit
    Junit,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

impl Check {
    /// The snapshots that are given, before and after `--`.
    pub(super) fn given_snapshots(&self) -> Vec<PathBuf> {
        self.snapshots.iter().cloned().chain(self.command.iter().map(PathBuf::from)).collect()
    }

    /// The command and its arguments. Fails if there is none, or snapshots as well.
    pub(super) fn checked_command(&self) -> anyhow::Result<&[OsString]> {
        if self.command.is_empty() {
            bail!("--gpu is for a dry run, which needs a command: oomscope check --gpu h100 -- python train.py");
        }
        if let Some(snapshot) = self.snapshots.first() {
            bail!("give either snapshots ({}) or, after --, a command to run", snapshot.display());
        }
        Ok(&self.command)
    }
}

/// A flag for every [`Limit`]; it overrides the limit in `oomscope.toml`.
#[derive(Debug)]
pub(super) struct LimitArgs(pub(super) Limits);

fn flag(limit: Limit) -> Arg {
    let heading = match limit.unit() {
        _ if limit.needs_baseline() => "Growth",
        Unit::Ratio => "Limits on fragmentation (a RATIO is 0.3 or 30%)",
        _ => "Limits",
    };
    Arg::new(limit.key())
        .long(limit.key())
        .value_name(limit.unit().placeholder())
        .value_parser(move |text: &str| limit.unit().parse(text))
        .allow_hyphen_values(true)
        .help(help(limit))
        .help_heading(heading)
}

/// A limit of one figure has the figure's meaning as its help.
fn help(limit: Limit) -> &'static str {
    match limit.key() {
        "max-growth" => "Growth of the peak of allocated or reserved memory over the baseline",
        "max-growth-ratio" => "Growth of the peak of allocated or reserved memory, relative to the baseline",
        _ => {
            let meaning = limit.meanings().next();
            debug_assert!(meaning.is_some(), "every limit is of a figure");
            meaning.unwrap_or_default()
        }
    }
}

impl Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        command.args(Limit::all().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let limits = Limit::all().filter_map(|limit| Some((limit, *matches.get_one::<Amount>(limit.key())?)));
        Ok(Self(limits.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_several_figures_has_a_help_of_its_own() {
        for limit in Limit::all().filter(|limit| limit.meanings().count() > 1) {
            assert!(!limit.meanings().any(|meaning| meaning == help(limit)), "{}", limit.key());
        }
    }
}
