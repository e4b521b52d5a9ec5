//! Arguments that several commands share.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};

use super::inputs::{Input, expand_paths, refuse_output_over_inputs};
use crate::allocator::device::GPUS;
pub(super) use crate::allocator::device::{parse_capacity, parse_replay_capacity};
pub(super) use crate::allocator::releases::parse_release;
use crate::analysis::rank_in_path;
use crate::base::units::quote_shell_word;
use crate::study::{Bound, PositionSelector, Window};

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
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_replay_capacity), hide_possible_values = true)]
    pub(super) capacity: Option<u64>,

    /// Show sizes as exact numbers of bytes
    #[arg(long)]
    pub(super) bytes: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// A parser of values, of which completions know some.
#[derive(Clone)]
pub(super) struct KnownValues<P> {
    parse: P,
    known: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for KnownValues<P> {
    type Value = P::Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<P::Value, clap::Error> {
        self.parse.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.known)().into_iter().map(PossibleValue::new)))
    }
}

/// `parse`, whose value may be the name of a GPU.
pub(super) fn gpu_or<P>(parse: P) -> KnownValues<P> {
    KnownValues { parse, known: || GPUS.iter().map(|gpu| gpu.name).collect() }
}

type PositionParser = fn(&str) -> Result<PositionSelector, &'static str>;

/// The parser of `--at`.
pub(super) const POSITION: KnownValues<PositionParser> =
    KnownValues { parse: str::parse, known: || vec!["peak", "failure", "end"] };

/// Parses `--set`, also the assignment that a page gives to copy.
#[expect(clippy::unnecessary_wraps, reason = "clap's parsers return a result")]
pub(super) fn parse_settings(text: &str) -> Result<String, Infallible> {
    let text = text.trim().trim_start_matches("export ");
    let assigned = ["PYTORCH_CUDA_ALLOC_CONF=", "PYTORCH_ALLOC_CONF="].iter().find_map(|name| text.strip_prefix(name));
    Ok(match assigned {
        _ if text == "unset PYTORCH_CUDA_ALLOC_CONF" => "default",
        Some(settings) => settings.trim_matches(['\'', '"']),
        None => text,
    }
    .to_owned())
}

/// The part of the trace to use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Selecting trace entries")]
pub(super) struct WindowArgs {
    /// Start at this entry
    ///
    /// An index from 0, per device, or counted from the end or from the last failed request: `end-500`, `failure-500`.
    #[arg(long, value_name = "ENTRY|end-N|failure-N", value_parser = parse_bound)]
    from: Option<Bound>,

    /// Stop before this entry
    #[arg(long, value_name = "ENTRY|end-N|failure+N", value_parser = parse_bound)]
    to: Option<Bound>,
}

impl WindowArgs {
    pub(super) fn window(&self) -> anyhow::Result<Window> {
        if let (Some(Bound::Entry(from)), Some(Bound::Entry(to))) = (self.from, self.to)
            && from >= to
        {
            bail!("--from {from} --to {to} leaves no entry: --to must be larger");
        }
        Ok(Window { from: self.from, to: self.to })
    }
}

/// Parses `500`, `end-500` and `failure-500`.
fn parse_bound(text: &str) -> Result<Bound, String> {
    let entry = text.parse().ok().map(Bound::Entry);
    let bound =
        entry.or_else(|| Some(Bound::BeforeEnd(text.strip_prefix("end-")?.parse().ok()?))).or_else(|| {
            match text.strip_prefix("failure")? {
                "" => Some(Bound::FromFailure(0)),
                by => Some(Bound::FromFailure(by.parse().ok().filter(|_| by.starts_with(['+', '-']))?)),
            }
        });
    bound.ok_or_else(|| "give the index of a trace entry, or one such as end-500 or failure-500".to_owned())
}

/// The snapshots to read.
#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    /// Snapshot files (.pickle, .pkl, .json; optionally .gz or .zst), directories of them, quoted patterns such as
    /// 'runs/**/*.pickle', or - for standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    paths: Vec<PathBuf>,
}

impl SnapshotArgs {
    /// The command that compares the files, if they are two and neither is named like a rank.
    pub(super) fn comparison(&self) -> Option<String> {
        let [before, after] = self.paths.as_slice() else { return None };
        let mut paths = [before, after].into_iter();
        let is_pair = paths.all(|path| path.is_file() && rank_in_path(&path.to_string_lossy()).is_none());
        let [before, after] = [before, after].map(|path| quote_shell_word(&path.to_string_lossy()));
        is_pair.then(|| format!("oomscope diff {before} {after}"))
    }

    /// The files, none of which is `output`.
    pub(super) fn inputs(&self, output: Option<&Path>) -> anyhow::Result<Vec<Input>> {
        let mut inputs = expand_paths(&self.paths)?;
        refuse_output_over_inputs(&mut inputs, output)?;
        Ok(inputs)
    }
}

/// How to show a page.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct ViewArgs {
    /// Show everything, not only the first screen
    #[arg(long)]
    pub(super) full: bool,

    /// Do not cut or wrap lines to the width of the terminal
    ///
    /// Useful with a pager such as less -S.
    #[arg(long)]
    pub(super) wide: bool,
}

/// Format and destination of the result.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Output format [default: human, or that of FILE's name]
    #[arg(long)]
    format: Option<Format>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Also write the result to FILE in FORMAT; repeatable
    #[arg(long, hide = true, value_name = "FORMAT=FILE", value_parser = parse_format_and_file::<Format>)]
    pub(super) also: Vec<(Format, PathBuf)>,

    #[command(flatten)]
    pub(super) view: ViewArgs,
}

/// Parses `markdown=summary.md`.
pub(super) fn parse_format_and_file<F: ValueEnum>(text: &str) -> Result<(F, PathBuf), String> {
    let (format, file) = text.split_once('=').ok_or("give a format and a file, such as markdown=summary.md")?;
    let format = F::from_str(format, false).map_err(|_| format!("'{format}' is not a format"))?;
    if file.is_empty() {
        return Err("give a file after =".to_owned());
    }
    Ok((format, PathBuf::from(file)))
}

impl OutputArgs {
    /// The format that was given, or that the name of the file shows.
    pub(super) fn format(&self) -> Format {
        self.format.unwrap_or_else(|| match self.output.as_ref().and_then(|path| path.extension()?.to_str()) {
            Some("json") => Format::Json,
            Some("jsonl") => Format::Jsonl,
            Some("md") => Format::Markdown,
            _ => Format::Human,
        })
    }
}

/// The formats of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for a terminal
    Human,
    /// JSON with stable keys
    Json,
    /// JSON without line breaks, one object per snapshot
    Jsonl,
    /// Markdown, for a CI step summary, a comment or an issue
    Markdown,
}
