//! `oomscope timeline`

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::{Format, WindowArgs, format_parser, parse_release};
use super::exit::Exit;
use super::inputs;
use super::output::Output;
use crate::output::formats;
use crate::output::report;
use crate::study::Window;
use crate::study::timeline::{TimelineOptions, timeline};

/// Show memory over time: allocated, reserved and free memory, fragmentation, and failures
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope timeline snapshot.pickle                charts for a terminal
  oomscope timeline --around-oom 500 s.pickle      500 entries before and after the last failure
  oomscope timeline --format csv s.pickle > s.csv  for pandas or gnuplot
  oomscope timeline --format csv --last 5000 --buckets 5000 s.pickle   one row per entry

The trace is divided into buckets with the same number of entries. Every series keeps the minimum and maximum of each \
bucket, so no spike is lost. `oomscope analyze --help` explains the terms.

Exit codes: 0 success; 2 wrong usage, an unreadable file, or no entry in the selected part of the trace.")]
pub(super) struct Timeline {
    /// Snapshot file (.pickle, .pkl, .json; optionally .gz or .zst), or - for standard input
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// Show only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Maximum number of buckets; charts merge buckets to fit the terminal
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    buckets: u32,

    /// PyTorch release that recorded the snapshot [default: inferred from the file]
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Output format
    #[arg(long, value_parser = format_parser(&[Format::Csv]), default_value = "human")]
    format: Format,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    window: WindowArgs,
}

pub(super) fn run(args: &Timeline) -> anyhow::Result<Exit> {
    let path = args.snapshot.display().to_string();
    let window = args.window.window()?;
    if let Some(written) = &args.output {
        inputs::refuse_output_over_input(&args.snapshot, written)?;
    }
    let output = Output::open(args.output.as_deref())?;
    let snapshot = inputs::read_one(&args.snapshot)?;
    let options =
        TimelineOptions { device: args.device, window, minor: args.torch_version, buckets: args.buckets as usize };
    let report = timeline(&snapshot, &path, options);
    if report.devices.is_empty() {
        let of_device = args.device.map_or_else(String::new, |device| format!(" of device {device}"));
        let part = if window == Window::All { "" } else { " in the selected part of the trace" };
        bail!(
            "{path}: no trace entry{of_device}{part}, so there is no timeline; `oomscope analyze` shows the snapshot itself"
        );
    }
    match args.format {
        Format::Csv => output.write(&formats::timeline_csv(&report))?,
        format => output.write_answer(format, &report, report::timeline)?,
    }
    Ok(Exit::Success)
}
