//! The arguments of `oomscope dry-run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::assumed::{Assumed, parse_capability, parse_gpu};
use super::{asked, stub};
use crate::cli::args::parse_capacity;
use crate::cli::run::{At, Directory, Frames, Options, Purpose, parse_count, parse_seconds};
use crate::device::Gpu;

/// Run a command without a GPU and record what it would ask of one: will it fit?
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope dry-run --gpu h100 -- python train.py
  oomscope dry-run --gpu rtx4090 -- torchrun --nproc-per-node 2 train.py     a device for each rank
  oomscope dry-run --gpu h100 --fit BATCH=4,8 -- python train.py --batch {BATCH}
                                                                             the largest batch that fits
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
    gpu: &'static Gpu,

    /// Device memory in place of the GPU's own, e.g. 40GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    memory: Option<u64>,

    /// Compute capability in place of the GPU's own: 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 or 12.0
    #[arg(long, value_name = "X.Y", value_parser = parse_capability, conflicts_with = "gpu", requires = "memory")]
    capability: Option<&'static Gpu>,

    /// Devices; at least one for each rank of torchrun
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=16))]
    devices: u64,

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
    pub(super) fn assumed(&self) -> Assumed {
        Assumed {
            gpu: self.capability.unwrap_or(self.gpu),
            memory: self.memory,
            is_named: self.capability.is_none(),
            devices: self.devices,
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
        let told = serde_json::to_string(&self.assumed().told(self.patience))?;
        let mut files = stub::FILES.to_vec();
        files.push(("dry-run.json", &told));
        let purpose = Purpose { name: "oomscope-dry-run", files: &files };
        Directory::prepare(output, &options, purpose)
    }
}
