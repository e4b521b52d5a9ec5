//! The arguments of `oomscope dry-run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::alone::Alone;
use super::assumed::{Assumed, parse_capability, parse_gpu};
use super::{asked, stub};
use crate::allocator::device::GpuModel;
use crate::cli::args::parse_capacity;
use crate::cli::run::{At, Directory, Frames, Options, Purpose, parse_count, parse_seconds};

/// Run a command without a GPU and record what it would ask of one: will it fit?
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope dry-run --gpu h100 -- python train.py
  oomscope dry-run --gpu rtx4090 -- torchrun --nproc-per-node 2 train.py     a device for each rank
  oomscope dry-run --gpu h100 --fit BATCH=4,8 -- python train.py --batch {BATCH}
                                                                             the largest batch that fits
  oomscope dry-run --gpu h100 --rank 3 --world-size 64 -- python train.py    one rank of 64, alone
  oomscope dry-run --memory 40GiB --capability 8.0 -- python train.py        a GPU that has no name here

PyTorch's own operators and its own allocator run; the GPU only lends addresses, and its kernels do nothing. Every value \
that the program reads back is zero: which were read, and whether they decide a size, is said. What is written is a \
snapshot as of `oomscope run`. Needs Linux on x86-64, a PyTorch built for CUDA, and once for each of its releases a C \
compiler (cc, or the package ziglang).

GPUs: v100 v100-32gb t4 a100-40gb a100 a10 rtx3090 l4 rtx4090 l40s h100 h200 b200 rtx5090

Exit code: the command's, as with `run`; 2 wrong usage, or no dry run was possible, which is said.")]
pub(in crate::cli) struct DryRun {
    /// The GPU to assume, by name
    #[arg(long, value_name = "NAME", default_value = "h100", value_parser = parse_gpu)]
    gpu: &'static GpuModel,

    /// Device memory in place of the GPU's own, e.g. 40GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    memory: Option<u64>,

    /// Compute capability in place of the GPU's own: 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 or 12.0
    #[arg(long, value_name = "X.Y", value_parser = parse_capability, conflicts_with = "gpu", requires = "memory")]
    capability: Option<&'static GpuModel>,

    /// Devices of this machine; at least one for each rank of torchrun; default: 1, with --world-size 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    devices: Option<u64>,

    /// Run the command once, as one rank of a job of N: nothing else of the job has to run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    world_size: Option<u64>,

    /// Which rank
    #[arg(long, value_name = "K", default_value = "0", requires = "world_size")]
    rank: u64,

    /// Run with each of these in place of {NAME} in the command, predict the largest that fits, and confirm it
    #[arg(long, value_name = "NAME=N,M,..", value_parser = asked::parse)]
    pub(super) fit: Option<asked::Sizes>,

    /// Write the snapshots to DIR; default: oomscope-dry-run-1, or the next number that is free
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Stop a program that goes on to read values for so long and takes no more memory; 0: never
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds)]
    patience: Duration,

    /// Trace entries kept for each device; the oldest are lost beyond that
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    max_entries: u64,

    /// Record stacks of Python alone, or of C++ too
    #[arg(long, default_value = "python")]
    stacks: Frames,

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(super) command: Vec<OsString>,
}

impl DryRun {
    /// Whether the command is one rank of a job, alone: as which.
    fn alone(&self) -> anyhow::Result<Option<Alone>> {
        let devices = self.devices.unwrap_or(Alone::DEVICES);
        let alone = self.world_size.map(|world_size| Alone::new(self.rank, world_size, devices));
        alone.transpose()
    }

    pub(super) fn assumed(&self) -> Assumed {
        Assumed {
            gpu: self.capability.unwrap_or(self.gpu),
            memory: self.memory,
            is_named: self.capability.is_none(),
            devices: self
                .devices
                .or(self.world_size.map(|size| size.min(Alone::DEVICES)))
                .unwrap_or(1),
        }
    }

    /// A directory with all that a dry run needs.
    pub(super) fn prepare(&self, output: Option<&Path>) -> anyhow::Result<Directory> {
        let options = Options {
            max_entries: self.max_entries,
            stacks: self.stacks,
            at: At::Exit,
            keep: 3,
            wait: 10.0,
        };
        let alone = self.alone()?;
        let told = serde_json::to_string(&self.assumed().told(self.patience, alone.is_some()))?;
        let mut files = stub::FILES.to_vec();
        files.push(("dry-run.json", &told));
        let environment = alone.map(Alone::environment).unwrap_or_default();
        let purpose =
            Purpose { name: "oomscope-dry-run", files: &files, environment: &environment };
        Directory::prepare(output, &options, purpose)
    }
}
