//! `oomscope live`, in a build with the feature `cuda`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::args::{OutputArgs, parse_settings};
use super::exit::Exit;
use super::inputs;
use super::signals::handled_by;
use crate::allocator::device::cuda::CudaDevice;
use crate::base::units::parse_size;
use crate::output::report;
use crate::study::{Scope, Study};
use crate::whatif::{apply_option, replay_on_gpu};

/// Replay it on a real GPU: does it fit, and what do device calls take?
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/live.txt"))]
pub(super) struct Live {
    /// Snapshot file (.pickle, .pkl, .json; optionally .gz or .zst), or - for standard input
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// Replay only this device of the snapshot
    #[arg(long, value_name = "N")]
    device: Option<u64>,

    /// Index of the GPU, as the driver counts (CUDA_VISIBLE_DEVICES applies)
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpu: u32,

    /// Settings to replay with, as in PYTORCH_CUDA_ALLOC_CONF; other options stay as recorded
    #[arg(long, value_name = "KEY:VALUE[,..]", value_parser = parse_settings)]
    set: Vec<String>,

    /// Free GPU memory to leave unused
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "512MiB")]
    reserve: u64,

    /// Write all memory once when it is allocated
    #[arg(long)]
    touch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &Live) -> anyhow::Result<Exit> {
    let file = args.snapshot.as_path();
    let path = file.display().to_string();
    inputs::refuse_output_over_input(file, args.output.output.as_deref())?;
    let output = args.output.open()?;
    let snapshot = inputs::read_one(file)?;
    let study = Study::new(&snapshot, Scope { device: args.device, ..Scope::default() });
    let traced = inputs::first_device_with_trace(&study, &path)?;
    let settings = (!args.set.is_empty())
        .then(|| apply_option(&snapshot, &traced.inferred().hypothesis, &args.set.join(",")))
        .transpose()
        .map_err(|error| anyhow!("--set {error}"))?;
    let stop = stop_flag()?;
    let mut gpu = CudaDevice::open(args.gpu, args.reserve, args.touch)?;
    let report =
        handled_by(|| replay_on_gpu(&study, &path, &mut gpu, settings, &stop)).with_context(|| path.clone())?;
    drop(gpu);
    output.write_answer(args.output.format(), &report, report::live)?;
    let as_predicted = report.devices.iter().all(|device| device.as_predicted);
    Ok(if as_predicted { Exit::Success } else { Exit::Failed })
}

/// A flag that Ctrl-C sets, so that all memory is freed in order. A second Ctrl-C ends the process at once; the driver
/// then frees the memory.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle Ctrl-C")?;
    }
    Ok(stop)
}
