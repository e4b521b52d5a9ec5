//! Arguments that several commands take; a command's own stand beside it.

use std::path::PathBuf;

use anyhow::bail;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::allocator::SMALL_SEGMENT;
use crate::allocator::releases::{NEWEST, OLDEST};
use crate::base::units::{parse_size, size};
use crate::study::{PositionSelector, Window};

/// Arguments of every replay on the model.
#[derive(Debug, Args)]
pub(super) struct Model {
    /// Snapshot file (.pickle, .pkl, .json; optionally .gz or .zst), or - for standard input
    #[arg(value_name = "SNAPSHOT")]
    pub(super) snapshot: PathBuf,

    /// Replay only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// Device memory to replay on, e.g. 80GiB; default: what the recording shows to be within reach
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    pub(super) capacity: Option<u64>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Bytes of device memory. What holds no segment at all is a number that lacks its unit.
pub(super) fn parse_capacity(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| error.to_string())? {
        bytes @ 0..SMALL_SEGMENT => {
            Err(format!("{} is less than a segment: give a unit, such as 80GiB", size(bytes)))
        }
        bytes => Ok(bytes),
    }
}

/// The minor release in `2.9`, `2.9.1` or `2.9.1+cu128`.
pub(super) fn parse_release(text: &str) -> Result<u32, String> {
    let mut parts = text.split(['.', '+']);
    let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
    match (major, minor) {
        (Some("2"), Some(minor @ OLDEST..=NEWEST)) => Ok(minor),
        _ => Err(format!("the rules of PyTorch 2.{OLDEST} to 2.{NEWEST} are known, such as 2.9")),
    }
}

/// The moment that `--at` names.
pub(super) fn parse_moment(text: &str) -> Result<PositionSelector, String> {
    match text {
        "peak" => Ok(PositionSelector::Peak),
        "failure" => Ok(PositionSelector::Failure),
        _ => text.parse().map(PositionSelector::Entry).map_err(|_| {
            "give the index of a trace entry, counted from 0, or peak or failure".to_owned()
        }),
    }
}

/// Which part of the trace; indices are of one device's entries, from 0.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selecting trace entries")]
pub(super) struct WindowArgs {
    /// Start at this entry (index from 0, per device)
    #[arg(long, value_name = "ENTRY")]
    from: Option<u64>,

    /// Stop before this entry
    #[arg(long, value_name = "ENTRY")]
    to: Option<u64>,

    /// Only the last N entries
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    last: Option<u64>,

    /// Only N entries before and after the last failed request; all entries if none failed
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to", "last"])]
    around_oom: Option<u64>,
}

impl WindowArgs {
    /// What was meant.
    pub(super) fn window(&self) -> anyhow::Result<Window> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            bail!("--from {from} --to {to} leaves no entry: --to must be larger");
        }
        Ok(match (self.last, self.around_oom, self.from, self.to) {
            (Some(n), ..) => Window::Last(n),
            (_, Some(n), ..) => Window::AroundOom(n),
            (_, _, None, None) => Window::Whole,
            (_, _, from, to) => Window::Between(from, to),
        })
    }
}

/// Where results go, and in which form.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Output format
    #[arg(long, value_parser = forms(&[]), default_value = "human")]
    pub(super) format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// The form of a result. Every command has the first four; which others it has stands in its arguments.
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
    /// Numbers only, one row per bucket
    Csv,
    /// Folded stacks with bytes before and after, for a differential flame graph
    Folded,
    /// GitHub Actions annotations on lines of code
    Github,
    /// JUnit XML, one test per limit
    Junit,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// One page to look at in a browser, which asks nothing of any server
    Html,
}

/// Reads the forms that every command has, and `others`.
pub(super) fn forms(others: &[Format]) -> impl TypedValueParser<Value = Format> + use<> {
    let all = [Format::Human, Format::Json, Format::Jsonl, Format::Markdown]
        .into_iter()
        .chain(others.to_vec());
    let names = all.filter_map(|format| format.to_possible_value());
    PossibleValuesParser::new(names).try_map(|name| Format::from_str(&name, false))
}
