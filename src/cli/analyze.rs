//! `oomscope analyze`

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::{OutputArgs, WindowArgs, parse_capacity, parse_release};
use super::exit::{Done, complain};
use super::inputs;
use super::output::Output;
use crate::analysis::{AnalyzeReport, Options, analyze, compare_ranks};
use crate::report;
use crate::units::parse_size;

/// Say what the memory was doing: failed requests, use and fragmentation, peak, course over time,
/// and who holds it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope analyze snapshot.pickle                 the page for a person
  oomscope analyze ranks/                          64 ranks, the worst first
  oomscope analyze --format json snapshot.pickle   for a script; keys are stable
  oomscope analyze --request 2GiB s.pickle         would 2 GiB more be served?
  zstd -dc big.pickle.zst | oomscope analyze -     from standard input

What the words mean:
  reserved    memory the allocator took from the device (cudaMalloc)
  allocated   the part of it that tensors hold
  free        the rest: cached for reuse
  releasable  free memory that torch.cuda.empty_cache() would give back to the device
  stranded    free memory that it would not: it shares segments with live blocks
  gap         1 - allocated / reserved

Exit codes: 0 done, whether or not a request failed; 2 wrong usage or an unreadable file.")]
pub(super) struct Analyze {
    /// Snapshots: files (.pickle, .pkl, .json, each also .gz or .zst), directories of them, or - for
    /// standard input
    #[arg(required = true, value_name = "SNAPSHOT")]
    snapshots: Vec<PathBuf>,

    /// Only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// How many stacks, lines and segments to list; the rest is summed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Bytes of device memory (80GiB), which no snapshot records: shows what is in use outside PyTorch
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    capacity: Option<u64>,

    /// Say what would become of a request of so many bytes (2GiB) at the snapshot: which block serves it,
    /// or why none does
    #[arg(long, value_name = "SIZE", value_parser = parse_request)]
    request: Option<u64>,

    /// The PyTorch release that recorded the snapshots, instead of what their keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    window: WindowArgs,
}

fn parse_request(text: &str) -> Result<u64, String> {
    match parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("a request of nothing is never refused: give more than 0".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads, analyzes and writes.
pub(super) fn run(args: &Analyze) -> anyhow::Result<Done> {
    let options = Options {
        device: args.device,
        top: args.top,
        window: args.window.window()?,
        capacity: args.capacity,
        request: args.request,
        minor: args.torch_version,
    };
    let mut inputs = inputs::expand(&args.snapshots)?;
    if let Some(path) = &args.output.output {
        inputs::spare(&mut inputs, path)?;
    }
    let output = Output::open(args.output.output.as_deref())?;
    let (snapshots, unreadable) =
        inputs::read_all(&inputs, |snapshot, path, bytes| analyze(snapshot, path, bytes, options));
    for file in &unreadable {
        complain(&format!("{}: {}", file.path, file.message));
    }
    if snapshots.is_empty() {
        if unreadable.is_empty() {
            bail!("no snapshot among the files given");
        }
        return Ok(Done::Partly);
    }
    let ranks = compare_ranks(&snapshots);
    if let Some(device) = args.device {
        let without = snapshots.iter().filter(|s| s.devices.is_empty()).map(|s| &*s.path);
        if let Some(message) = inputs::lacking(without, device) {
            if snapshots.iter().all(|s| s.devices.is_empty()) {
                bail!(message);
            }
            // Beside a table of ranks the notes of those that are not in it are not shown.
            if ranks.is_some() {
                complain(&message);
            }
        }
    }
    let done = if unreadable.is_empty() { Done::Well } else { Done::Partly };
    let report = AnalyzeReport { schema: "oomscope/analyze/1", snapshots, ranks, unreadable };
    output.write_answer(args.output.format, &report, report::analyze)?;
    Ok(done)
}
