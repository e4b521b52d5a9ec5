//! `oomscope fit`

use itertools::Itertools as _;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::args::{Format, OutputArgs, gpu_or, parse_replay_capacity, parse_settings};
use super::dry_run::{DryRunOptions, SizeSearch, find_placeholder};
use super::exit::Exit;
use super::inputs::{self, SizedRecordings};
use crate::allocator::device::GpuModel;
use crate::base::units::MIB;
use crate::output::document::Document;
use crate::output::report;
use crate::whatif::fit::{FitOptions, fit};

/// Find the largest size that fits, by dry runs or from recordings
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/fit.txt"))]
pub(super) struct Fit {
    /// Recordings with their sizes: 8=snapshot.pickle
    ///
    /// A recording is a snapshot, or a directory with one snapshot, as `oomscope run` writes.
    #[arg(value_name = "SIZE=SNAPSHOT", required_unless_present = "command", value_parser = parse_recording)]
    recordings: Vec<(u64, PathBuf)>,

    /// Device memory: 80GiB, or a GPU such as h100 [default: the memory that a failed request in a recording shows]
    ///
    /// PyTorch may use all of a size; of a GPU it may use what the CUDA context leaves (dry-run --help lists the names,
    /// and its --memory includes the context). A command runs on h100 by default. Give both for a part of a GPU.
    #[arg(long, visible_alias = "gpu", value_name = "SIZE|GPU", value_parser = gpu_or(parse_fit_capacity), hide_possible_values = true)]
    capacity: Vec<Capacity>,

    /// Settings to replay with, as in PYTORCH_CUDA_ALLOC_CONF [default: as recorded, then a grid]
    #[arg(long, value_name = "KEY:VALUE[,..]", value_parser = parse_settings)]
    set: Option<String>,

    /// Search only multiples of N
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    multiple_of: u64,

    /// Sizes to look at: of recordings those to predict, of a command the first runs
    ///
    /// For recordings, sizes next to the largest that fits are always listed; by default the recorded ones too. A
    /// command is first run at 4 and 8, or at the first two sizes that --multiple-of allows.
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    sizes: Vec<u64>,

    /// Show sizes as exact numbers of bytes
    #[arg(long)]
    bytes: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// Command and its arguments, with a word in braces for the size
    #[arg(last = true, value_name = "COMMAND",
        conflicts_with_all = ["recordings", "set"])]
    command: Vec<OsString>,
}

/// Bytes that PyTorch may use, and the GPU that was named.
type Capacity = (u64, Option<&'static GpuModel>);

fn parse_fit_capacity(text: &str) -> Result<Capacity, String> {
    Ok((parse_replay_capacity(text)?, GpuModel::find(text)))
}

impl Fit {
    /// The bytes given as a size, else those of the GPU; and the GPU.
    fn device(&self) -> (Option<u64>, Option<&'static GpuModel>) {
        let smallest = self.capacity.iter().min_by_key(|(_, gpu)| gpu.is_some());
        (smallest.map(|(bytes, _)| *bytes), self.capacity.iter().find_map(|(_, gpu)| *gpu))
    }
}

/// Parses `8=snapshot.pickle`.
pub(super) fn parse_recording(text: &str) -> Result<(u64, PathBuf), String> {
    let Some((size, path)) = text.split_once('=') else {
        return Err(format!("give the size of the recording, such as 8={text}"));
    };
    match size.parse() {
        Ok(size @ 1..) if !path.is_empty() => Ok((size, path.into())),
        _ => Err("a size is a whole number from 1, such as 8=snapshot.pickle".to_owned()),
    }
}

/// The smallest size that is run without `--sizes`.
const FIRST_SIZE: u64 = 4;

/// Finds the largest size by dry runs of the command.
fn search(args: &Fit) -> anyhow::Result<Exit> {
    let name = find_placeholder(&args.command)?;
    let first = FIRST_SIZE.next_multiple_of(args.multiple_of);
    let sizes = if args.sizes.is_empty() { vec![first, 2 * first] } else { args.sizes.clone() };
    let sizes: Vec<u64> = sizes.into_iter().sorted_unstable().dedup().collect();
    if sizes.len() < 2 {
        bail!("--sizes: give two or more, such as 4,8");
    }
    let output = args.output.open()?.with_exact_sizes(args.bytes);
    let (bytes, named) = args.device();
    let bytes = bytes.filter(|bytes| named.is_none_or(|gpu| gpu.usable_bytes() != *bytes));
    let gpu = named.unwrap_or_else(GpuModel::current);
    let memory = bytes.map(|bytes| bytes.saturating_add(gpu.context_mib * MIB));
    let options = DryRunOptions::on_gpu(gpu.name, memory)?;
    let report = SizeSearch::new(&options, &args.command, &name, args.multiple_of)?.run(&sizes)?;
    output.write_answer(args.output.format(), &report, report::size_search)
}

pub(super) fn run(args: &Fit) -> anyhow::Result<Exit> {
    if !args.command.is_empty() {
        return search(args);
    }
    let recordings = args.recordings.iter().map(|(size, path)| Ok((*size, inputs::single_snapshot(path)?)));
    let recordings: Vec<(u64, PathBuf)> = recordings.collect::<anyhow::Result<_>>()?;
    for (_, path) in &recordings {
        inputs::refuse_output_over_input(path, args.output.output.as_deref())?;
    }
    for (index, (size, path)) in recordings.iter().enumerate() {
        let mut earlier = recordings[..index].iter().filter(|(other, _)| other != size);
        if let Some((other, _)) = earlier.find(|(_, other)| inputs::are_same_file(other, path)) {
            bail!("{}: is given for both size {other} and size {size}; record each size", path.display());
        }
    }
    let output = args.output.open()?.with_exact_sizes(args.bytes);
    let mut sized = SizedRecordings::default();
    for (size, path) in &recordings {
        sized.add(*size, path)?;
    }
    if args.sizes.len() > MAX_SIZES {
        bail!("--sizes takes at most {MAX_SIZES} sizes");
    }
    let (capacity, gpu) = args.device();
    let options =
        FitOptions { sizes: &args.sizes, capacity, gpu, settings: args.set.as_deref(), multiple: args.multiple_of };
    let report = match sized.study(|inputs| fit(inputs, &options))? {
        Ok(report) => report,
        Err(refusal) => {
            if args.output.format() == Format::Json {
                output.write_answer(Format::Json, &refusal, |_| Document::default())?;
            }
            bail!(refusal.sentence);
        }
    };
    output.write_answer(args.output.format(), &report, report::fit)
}

/// Each size is a replay.
const MAX_SIZES: usize = 256;
