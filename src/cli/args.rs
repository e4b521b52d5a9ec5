//! Arguments that several commands share.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::inputs::{Input, expand_named, refuse_output_over_inputs};
pub(super) use crate::allocator::device::{parse_capacity, parse_replay_capacity};
pub(super) use crate::allocator::releases::parse_release;
use crate::study::{PositionSelector, Window};

/// Arguments of commands that replay on the allocator model.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    #[command(flatten)]
    pub(super) snapshots: SnapshotArgs,

    /// Replay only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// Device memory to replay with: 80GiB, or a GPU such as h100 [default: the memory that the recording shows]
    ///
    /// For a GPU by name it is the memory that the CUDA context leaves (dry-run --help lists the names).
    ///
    /// Snapshots do not record the size of the device. Without this option, the replay uses as much memory as a failed
    /// request, or the recorder of `oomscope run`, shows to be available.
    #[arg(long, value_name = "SIZE|GPU", value_parser = parse_replay_capacity)]
    pub(super) capacity: Option<u64>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Parses the argument of `--at`.
pub(super) fn parse_position(text: &str) -> Result<PositionSelector, String> {
    match text {
        "peak" => Ok(PositionSelector::Peak),
        "failure" => Ok(PositionSelector::Failure),
        "end" => Ok(PositionSelector::End),
        _ => text
            .parse()
            .map(PositionSelector::Entry)
            .map_err(|_| "give the index of a trace entry, counted from 0, or peak, failure or end".to_owned()),
    }
}

/// The part of the trace to use, by entry indexes of each device.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selecting trace entries")]
pub(super) struct WindowArgs {
    /// Start at this entry (index from 0, per device)
    #[arg(long, value_name = "ENTRY")]
    from: Option<u64>,

    /// Stop before this entry
    #[arg(long, value_name = "ENTRY")]
    to: Option<u64>,

    /// Use only the last N entries
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    last: Option<u64>,

    /// Use only N entries before and after the last failed request; all entries if none failed
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to", "last"])]
    around_oom: Option<u64>,
}

impl WindowArgs {
    pub(super) fn window(&self) -> anyhow::Result<Window> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            bail!("--from {from} --to {to} leaves no entry: --to must be larger");
        }
        Ok(match (self.last, self.around_oom, self.from, self.to) {
            (Some(n), ..) => Window::Last(n),
            (_, Some(n), ..) => Window::AroundOom(n),
            (_, _, None, None) => Window::All,
            (_, _, from, to) => Window::Between(from, to),
        })
    }
}

/// The snapshots to read.
#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, quoted patterns such as
    /// 'runs/**/*.pickle', or - for standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    paths: Vec<PathBuf>,

    /// Name of standard input in the result, such as rank3.pickle
    ///
    /// Rank and host are read from it, as from a path.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl SnapshotArgs {
    /// The files, none of which is `output`.
    pub(super) fn inputs(&self, output: Option<&Path>) -> anyhow::Result<Vec<Input>> {
        let mut inputs = expand_named(&self.paths, self.name.as_deref())?;
        output.map_or(Ok(()), |output| refuse_output_over_inputs(&mut inputs, output))?;
        Ok(inputs)
    }
}

/// Format and destination of the result.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Output format
    #[arg(long, value_parser = format_parser(&[]), default_value = "human")]
    pub(super) format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// Output formats. Every command has the first four; each adds its own with [`format_parser`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) enum Format {
    /// Text for a terminal
    Human,
    /// JSON with stable keys
    Json,
    /// JSON without line breaks, one object per snapshot
    Jsonl,
    /// Markdown, for a CI step summary, a comment or an issue
    Markdown,
    /// GitHub Actions annotations on source lines
    Github,
    /// JUnit XML, one test per limit
    Junit,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// Accepts the formats that every command has, and `others`.
pub(super) fn format_parser(others: &[Format]) -> impl TypedValueParser<Value = Format> + use<> {
    let all = [Format::Human, Format::Json, Format::Jsonl, Format::Markdown].into_iter().chain(others.to_vec());
    let names = all.filter_map(|format| format.to_possible_value());
    PossibleValuesParser::new(names).try_map(|name| Format::from_str(&name, false))
}
