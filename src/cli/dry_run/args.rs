//! The arguments of `oomscope dry-run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::options::DryRunOptions;
use crate::cli::args::Format;

/// Run a command without a GPU, to test whether it would fit on one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope dry-run --gpu h100 -- python train.py
  oomscope dry-run --gpu rtx4090 -- torchrun --nproc-per-node 2 train.py     one device for each rank
  oomscope dry-run --gpu l4 --try -- python train.py                         if it does not fit: what helps
  oomscope dry-run --gpu h100 --rank 3/64 -- python train.py               one rank of 64

PyTorch's own operators and allocator run; a stub of the GPU provides addresses, and its kernels do nothing. Every \
value that the program reads back is zero; the result lists these values, and whether they determine a size. The \
output is a snapshot, same as in `oomscope run`. Needs Linux on x86-64, a PyTorch built for CUDA and, once for each \
release of it, a C compiler (cc, or the package ziglang).

GPUs: v100 v100-32gb t4 a100-40gb a100 a10 a10g a40 a6000 rtx3080 rtx3090 l4 rtx4080 rtx4090 l40s h100 \
h100-nvl h200 b200 rtx5090 rtxpro6000

Exit code: the command's, same as in `oomscope run`; 2 wrong usage, or no dry run was possible. With --exit-code \
verdict: 0 would fit, 1 would not fit, 3 may fit, 2 did not finish, no verdict or wrong usage.")]
pub(in crate::cli) struct DryRun {
    #[command(flatten)]
    pub(super) options: DryRunOptions,

    /// If it does not fit, run again with remedies that need no change to the program, and say which runs end
    ///
    /// At most five runs: the allocator settings that serve the request in a replay, foreach=False in optimizers and,
    /// with --size, smaller sizes. The program's output goes to DIR/try-1.txt and so on.
    #[arg(long = "try")]
    pub(super) tries: bool,

    /// Format of the answer on standard output: that of `analyze`, or the runs of --try
    ///
    /// The program's output then goes to DIR/output.txt.
    #[arg(long, default_value = "human")]
    pub(super) format: Format,

    /// Write the snapshots to DIR [default: oomscope-dry-run-1, or the next free number]
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Exit code: that of the command, or the verdict: 0 would fit, 1 would not, 3 may fit, 2 did not finish or none
    #[arg(long, value_name = "WHICH", default_value = "command")]
    pub(super) exit_code: ExitCode,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// The exit code of `oomscope dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExitCode {
    Command,
    Verdict,
}
