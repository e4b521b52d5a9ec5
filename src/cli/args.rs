//! What can be typed.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::analysis::Window;
use crate::replay::NEWEST;
use crate::units::parse_size;

/// Explains PyTorch CUDA memory snapshots: what held the GPU's memory, and why a request failed.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "A snapshot is the file that torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes after \
torch.cuda.memory._record_memory_history(). No GPU and no PyTorch are needed to read it, and nothing in it is executed.\n\n\
Exit codes: 0 done, 1 a gate failed, 2 wrong usage or an unreadable file."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Analyze(Analyze),
    Replay(Replay),
    Whatif(Whatif),
}

/// Say what the memory was doing: failed requests, use and fragmentation, peak, course over time,
/// and who holds it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope analyze snapshot.pickle                 the page for a person
  oomscope analyze ranks/                          64 ranks, the worst first
  oomscope analyze --format json snapshot.pickle   for a script; keys are stable
  zstd -dc big.pickle.zst | oomscope analyze -     from standard input

What the words mean:
  reserved    memory the allocator took from the device (cudaMalloc)
  allocated   the part of it that tensors hold
  free        the rest: cached for reuse
  releasable  free memory that torch.cuda.empty_cache() would give back to the device
  stranded    free memory that it would not: it shares segments with live blocks
  gap         1 - allocated / reserved")]
pub(super) struct Analyze {
    /// Snapshots: files (.pickle, .pkl, .json, each also .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub(super) snapshots: Vec<PathBuf>,

    /// Only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// How many stacks, lines and segments to list; the rest is summed
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) top: usize,

    /// Bytes of device memory (80GiB), which no snapshot records: shows what is in use outside PyTorch
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) capacity: Option<u64>,

    /// The PyTorch release that recorded the snapshots, instead of what their keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,

    #[command(flatten)]
    pub(super) window: WindowArgs,

    #[command(flatten)]
    pub(super) output: Output,
}

/// Replay the trace through a model of PyTorch's allocator: was every decision reproduced, and what
/// would other settings, another device or another release have done?
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope replay snapshot.pickle                 verify the model
  oomscope replay --set expandable_segments:True snapshot.pickle
  oomscope replay --set max_split_size_mb:128 --capacity 40GiB s.pickle
  oomscope replay --emit-snapshot model.pickle snapshot.pickle

Without --set and --capacity the model is held against the recording, entry by entry. What a \
file does not say (the exact release, a limit of the process, settings before PyTorch 2.3) is \
found out by trying. In a what-if the program is taken to make the same requests and frees.

Exit codes: 0 every decision reproduced, or a what-if; 1 the model and the recording part; \
2 wrong usage or an unreadable file.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Replay {
    #[command(flatten)]
    pub(super) model: Model,

    /// Settings to replay under instead, in the syntax of PYTORCH_CUDA_ALLOC_CONF; options not named
    /// stay as recorded
    #[arg(long, value_name = "KEY:VALUE[,..]")]
    pub(super) set: Vec<String>,

    /// The PyTorch release that recorded the snapshot; one that cannot have is replayed as a what-if
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,

    /// Write the model's own end state and trace to FILE, as a snapshot that memory_viz opens
    #[arg(long, value_name = "FILE")]
    pub(super) emit_snapshot: Option<PathBuf>,
}

/// Replay the trace under many settings: which fail, what each reserves, the smallest device each fits
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope whatif snapshot.pickle                    a grid of settings
  oomscope whatif --capacity 40GiB snapshot.pickle   on another device
  oomscope whatif --set max_split_size_mb:100 --set expandable_segments:True s.pickle

The first row of each device is the recorded settings; the others follow, those first under which \
fewest requests fail and least is reserved. The program is taken to make the same requests and frees. \
No setting needs less than the lower bound: what the program held at once.")]
#[expect(clippy::doc_markdown, reason = "shown as typed, in a terminal")]
pub(super) struct Whatif {
    #[command(flatten)]
    pub(super) model: Model,

    /// Settings to try, a row each, instead of the grid; in the syntax of PYTORCH_CUDA_ALLOC_CONF
    #[arg(long, value_name = "KEY:VALUE[,..]")]
    pub(super) set: Vec<String>,

    /// The PyTorch release that recorded the snapshot, instead of what its keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    pub(super) torch_version: Option<u32>,
}

/// What every replay on the model takes.
#[derive(Debug, Args)]
pub(super) struct Model {
    /// The snapshot: .pickle, .pkl or .json, each also .gz or .zst, or - for standard input
    #[arg(value_name = "SNAPSHOT")]
    pub(super) snapshot: PathBuf,

    /// Only this device
    #[arg(long, value_name = "N")]
    pub(super) device: Option<u64>,

    /// Bytes of device memory to replay on (80GiB), instead of what the recording shows
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(super) capacity: Option<u64>,

    #[command(flatten)]
    pub(super) output: PlainOutput,
}

/// The minor release in `2.9`, `2.9.1` or `2.9.1+cu128`.
fn parse_release(text: &str) -> Result<u32, String> {
    let mut parts = text.split(['.', '+']);
    let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
    match (major, minor) {
        (Some("2"), Some(minor @ 1..=NEWEST)) => Ok(minor),
        _ => Err(format!("the rules of PyTorch 2.1 to 2.{NEWEST} are known, such as 2.9")),
    }
}

/// Which part of the trace; indices are of one device's entries, from 0.
#[derive(Debug, Args)]
#[command(next_help_heading = "Part of the trace")]
pub(super) struct WindowArgs {
    /// From this entry on
    #[arg(long, value_name = "EVENT")]
    from: Option<u64>,

    /// Up to, not including, this entry
    #[arg(long, value_name = "EVENT")]
    to: Option<u64>,

    /// This many entries at the end
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    last: Option<u64>,

    /// This many entries before and after the last failed request
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
pub(super) struct Output {
    /// Form of the result
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(super) format: Format,

    /// Write the result to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// The same, for commands without a Markdown form.
#[derive(Debug, Args)]
pub(super) struct PlainOutput {
    /// Form of the result
    #[arg(long, value_enum, default_value_t = PlainFormat::Human)]
    pub(super) format: PlainFormat,

    /// Write the result to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlainFormat {
    /// A page for a person
    Human,
    /// The stable machine-readable form
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A page for a person
    Human,
    /// The stable machine-readable form
    Json,
    /// For a step summary or an issue
    Markdown,
}
