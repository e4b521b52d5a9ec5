//! `oomscope timeline`

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::{Format, WindowArgs, forms, parse_release};
use super::exit::Done;
use super::inputs;
use super::output::Output;
use crate::report;
use crate::study::Window;
use crate::timeline::{TimelineOptions, timeline};

/// Show memory over time: allocated, reserved, free by kind, fragmentation, and what happened when
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope timeline snapshot.pickle                charts for a person
  oomscope timeline --around-oom 500 s.pickle      the 500 entries around the last failure
  oomscope timeline --format csv s.pickle > s.csv  for pandas or gnuplot
  oomscope timeline --format csv --last 5000 --buckets 5000 s.pickle   one row an entry

The trace is cut into buckets of as many entries each. Every series keeps the smallest and the \
largest value of each bucket, so that no spike is lost. The words are those of `oomscope analyze`.

Exit codes: 0 done; 2 wrong usage, an unreadable file, or no entry in that part of the trace.")]
pub(super) struct Timeline {
    /// The snapshot: .pickle, .pkl or .json, each also .gz or .zst, or - for standard input
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// Only this device
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// At most so many buckets; charts join what does not fit the width
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    buckets: u32,

    /// The PyTorch release that recorded the snapshot, instead of what its keys tell
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    torch_version: Option<u32>,

    /// Form of the result
    #[arg(long, value_parser = forms(&[Format::Csv]), default_value = "human")]
    format: Format,

    /// Write the result to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    window: WindowArgs,
}

/// Reads, follows the trace and writes.
pub(super) fn run(args: &Timeline) -> anyhow::Result<Done> {
    let path = args.snapshot.display().to_string();
    let window = args.window.window()?;
    if let Some(written) = &args.output {
        inputs::spare_one(&args.snapshot, written)?;
    }
    let output = Output::open(args.output.as_deref())?;
    let snapshot = inputs::read_one(&args.snapshot)?;
    let options = TimelineOptions {
        device: args.device,
        window,
        minor: args.torch_version,
        buckets: args.buckets as usize,
    };
    let report = timeline(&snapshot, &path, options);
    if report.devices.is_empty() {
        let of = args.device.map_or_else(String::new, |device| format!(" of device {device}"));
        let part = if window == Window::Whole { "" } else { " in that part of the trace" };
        bail!(
            "{path}: no trace entry{of}{part}, so nothing to show over time; `oomscope analyze` shows what there is"
        );
    }
    match args.format {
        Format::Csv => output.write(&report::timeline_csv(&report))?,
        format => output.write_answer(format, &report, report::timeline)?,
    }
    Ok(Done::Well)
}
