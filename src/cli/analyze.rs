//! `oomscope analyze`

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use clap::Args;

use super::args::{Format, OutputArgs, POSITION, SnapshotArgs, WindowArgs, gpu_or, parse_capacity, parse_release};
use super::config::Config;
use super::exit::{Exit, print_stderr};
use super::inputs::{self, Input};
use super::lines::write_lines;
use super::output::Output;
use super::source::SourceArgs;
use crate::analysis::{Options, analyze};
use crate::base::units::parse_memory;
use crate::output::Brief;
use crate::output::formats;
use crate::output::report;
use crate::snapshot::Snapshot;
use crate::study::{PositionSelector, Scope};

/// Show why a request failed, who holds the memory, and what helps
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/analyze.txt"))]
pub(super) struct Analyze {
    #[command(flatten)]
    snapshots: SnapshotArgs,

    /// Name of standard input in the result, such as rank3.pickle
    ///
    /// Rank and host are read from it, as from a path.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Analyze only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Number of stacks and source lines to list; the rest is summed up
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Show memory at this point of the trace [default: at the snapshot]
    ///
    /// ENTRY shows memory after the trace entry with this index (from 0, per device), `peak` when most was allocated,
    /// `failure` when the last failed request was made, `end` after the last entry.
    #[arg(long, value_name = "ENTRY|step:N|peak|failure|end", value_parser = POSITION, hide_possible_values = true,
        allow_negative_numbers = true)]
    at: Option<PositionSelector>,

    /// Total device memory: 80GiB, or a GPU such as h100
    ///
    /// Snapshots do not record it. With it, the page shows how much memory is used outside PyTorch.
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_capacity), hide_possible_values = true)]
    capacity: Option<u64>,

    /// Test whether an allocation of SIZE (e.g. 2GiB) would succeed at the snapshot, or at --at
    #[arg(long, value_name = "SIZE", value_parser = parse_request)]
    request: Option<u64>,

    /// PyTorch release that recorded the snapshots [default: inferred from the files]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// With --format json: only the verdict, source line, figures and remedies, in less than 2 KB
    #[arg(long)]
    brief: bool,

    #[command(flatten)]
    source: SourceArgs,

    /// Show sizes as exact numbers of bytes
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    window: WindowArgs,
}

fn parse_request(text: &str) -> Result<u64, String> {
    Some(parse_memory(text)?).filter(|bytes| *bytes > 0).ok_or_else(|| "the size must be larger than 0".to_owned())
}

/// Maximum size of the output with --brief.
const MAX_BRIEF_BYTES: usize = 2048;

pub(super) fn run(args: &Analyze) -> anyhow::Result<Exit> {
    if args.brief && args.output.format() != Format::Json {
        bail!("--brief needs --format json; --format jsonl is always brief");
    }
    let (config, config_path) = Config::load(None)?;
    let mut inputs = args.snapshots.inputs(args.output.output.as_deref())?;
    if let Some(name) = &args.name {
        match inputs.iter_mut().find(|input| inputs::is_stdin(&input.path)) {
            Some(stdin) => stdin.name.clone_from(name),
            None => bail!("--name names standard input: give - as the snapshot"),
        }
    }
    config_path.map_or(Ok(()), |config| inputs::refuse_output_over_input(&config, args.output.output.as_deref()))?;
    let mut output = args.output.open()?.with_exact_sizes(args.bytes);
    let source = args.source.open_at(args.output.format() == Format::Human && output.is_terminal())?;
    let (device, window, capacity) = (args.device, args.window.window()?, args.capacity);
    let scope = Scope { device, window, capacity, minor: args.torch_version, ..Scope::default() };
    let (at, request) = (args.at, args.request);
    let options = Options { scope, top: args.top, at, request, keeps_lifetimes: false, rules: &config.categories };
    if args.output.format() == Format::Jsonl {
        return stream(&inputs, options, output);
    }
    let (snapshots, unreadable) = inputs::read_all(&inputs, |snapshot: &mut Snapshot, path: &str, bytes: u64| {
        source.add_to(snapshot);
        analyze(snapshot, path, bytes, options)
    });
    let are_all_read = unreadable.is_empty();
    let Some((report, exit)) = inputs::combine_snapshots(snapshots, unreadable, options)? else {
        return Ok(Exit::Unreadable); // each file was reported when it could not be read
    };
    match args.output.format() {
        Format::Json if args.brief => {
            output.write_also(&report, &report::analyze)?;
            output.write(&formats::json(&Brief::within(&report, MAX_BRIEF_BYTES))?)?
        }
        format => output.write_answer(format, &report, report::analyze)?,
    };
    if let (true, Format::Human, Some(diff)) = (are_all_read, args.output.format(), args.snapshots.comparison()) {
        print_stderr(&format!("read as snapshots of one job; to compare them: {diff}"));
    }
    Ok(exit)
}

/// Writes a line for each snapshot as soon as it is analyzed.
fn stream(inputs: &[Input], options: Options<'_>, output: Output) -> anyhow::Result<Exit> {
    let (has_device, has_position) = (AtomicBool::new(false), AtomicBool::new(false));
    let exit = write_lines(output, inputs, |snapshot, path, bytes| {
        let report = analyze(snapshot, path, bytes, options);
        has_device.fetch_or(!report.devices.is_empty(), Ordering::Relaxed);
        has_position.fetch_or(report.devices.iter().any(|device| device.moment.is_some()), Ordering::Relaxed);
        Ok(Brief::from_snapshot(&report, options.top))
    })?;
    if exit != Exit::Success {
        return Ok(exit);
    }
    if let Some(position) = options.at.filter(|_| !has_position.into_inner()) {
        bail!(inputs::missing_position(position));
    }
    if let Some(device) = options.scope.device.filter(|_| !has_device.into_inner()) {
        bail!("no snapshot has memory or a trace of GPU {device}");
    }
    Ok(exit)
}
