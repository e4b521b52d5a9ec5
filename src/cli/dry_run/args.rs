//! The arguments of `oomscope dry-run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};

use super::assumed_gpu::{AssumedGpu, parse_capability, parse_gpu};
use super::bracket::SizeStep;
use super::set_value::{SetValue, parse_value};
use super::single_rank::SingleRank;
use super::{fit_sizes, placeholder, stub};
use crate::allocator::device::GpuModel;
use crate::cli::args::{Format, format_parser, parse_capacity};
use crate::cli::run::{RecorderOptions, RunDirectory, RunKind, SnapshotWhen, StackKind, parse_count, parse_seconds};

/// Run a command without a GPU, to test whether it would fit on one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope dry-run --gpu h100 -- python train.py
  oomscope dry-run --gpu rtx4090 -- torchrun --nproc-per-node 2 train.py     one device for each rank
  oomscope dry-run --gpu h100 --fit BATCH=4,8 -- python train.py --batch {BATCH}
                                                                             the largest batch that fits
  oomscope dry-run --gpu l4 --try -- python train.py                         if it does not fit: what helps
  oomscope dry-run --gpu h100 --rank 3 --world-size 64 -- python train.py    one rank of 64
  oomscope dry-run --memory 40GiB --capability 8.0 -- python train.py        a GPU that is not listed

PyTorch's own operators and allocator run; a stub of the GPU provides addresses, and its kernels do nothing. Every \
value that the program reads back is zero; the result lists these values, and whether they determine a size. The \
output is a snapshot, same as in `oomscope run`. Needs Linux on x86-64, a PyTorch built for CUDA and, once for each \
release of it, a C compiler (cc, or the package ziglang).

GPUs: v100 v100-32gb t4 a100-40gb a100 a10 rtx3090 l4 rtx4090 l40s h100 h200 b200 rtx5090

Exit code: the command's, same as in `oomscope run`; 2 wrong usage, or no dry run was possible. With --exit-code \
verdict: 0 would fit, 1 would not fit, 3 may fit, 2 did not finish, no verdict or wrong usage.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(in crate::cli) struct DryRun {
    /// GPU to simulate
    #[arg(long, value_name = "NAME", default_value = "h100", value_parser = parse_gpu)]
    gpu: &'static GpuModel,

    /// Device memory, e.g. 40GiB [default: that of the GPU]
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    memory: Option<u64>,

    /// Compute capability, instead of --gpu: 7.0, 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 or 12.0
    #[arg(long, value_name = "X.Y", value_parser = parse_capability, conflicts_with = "gpu", requires = "memory")]
    capability: Option<&'static GpuModel>,

    /// Number of devices, at least one for each rank of torchrun [default: 1; 8 with --world-size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    devices: Option<u64>,

    /// Run the command as one rank of a job of N ranks, without the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    world_size: Option<u64>,

    /// Rank to run, with --world-size
    #[arg(long, value_name = "K", default_value = "0", requires = "world_size")]
    rank: u64,

    /// Run with each size in place of {NAME} in the command, and find the largest size that fits, in at most 12 runs
    #[arg(long, value_name = "NAME=N,M,..", value_parser = fit_sizes::parse_fit_sizes)]
    pub(super) fit: Option<fit_sizes::FitSizes>,

    /// With --fit: only multiples of N
    #[arg(long, value_name = "N", requires = "fit", default_value = "1", hide_default_value = true,
        value_parser = clap::value_parser!(u64).range(1..))]
    multiple_of: u64,

    /// With --fit: only powers of two
    #[arg(long, requires = "fit", conflicts_with = "multiple_of")]
    power_of_two: bool,

    /// If it does not fit, run again with remedies that need no change to the program, and say which runs end
    ///
    /// At most five runs: the allocator settings that serve the request in a replay, foreach=False in optimizers and,
    /// with --size, smaller sizes. The program's output goes to DIR/try-1.txt and so on.
    #[arg(long = "try", conflicts_with = "fit")]
    pub(super) tries: bool,

    /// With --try: N in place of {NAME} in the command, then half of it, and so on
    #[arg(long, value_name = "NAME=N", requires = "tries", value_parser = parse_size)]
    pub(super) size: Option<(String, u64)>,

    /// Format of the answer of --fit, or of the runs of --try; the program's output then goes to DIR/output.txt
    #[arg(long, value_parser = format_parser(&[]), default_value = "human")]
    pub(super) format: Format,

    /// Write the snapshots to DIR [default: oomscope-dry-run-1, or the next free number]
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Let the program write its files in their own places, and loggers send the run to services
    ///
    /// Without this option, everything that Python writes goes to DIR/files and is read back from there, because the
    /// tensors of a dry run are zero and must not replace real ones. New files in temporary and cache directories stay
    /// in place.
    #[arg(long)]
    pub(super) real_files: bool,

    /// Value that the program reads from the GPU at a line, instead of zero: train.py:12=True, or a number
    ///
    /// May be repeated. At a line with `nonzero`, a mask or `unique` it is the number of elements.
    #[arg(long, value_name = "FILE:LINE=V", value_parser = parse_value)]
    value: Vec<SetValue>,

    /// Exit code: that of the command, or the verdict: 0 would fit, 1 would not, 3 may fit, 2 did not finish or none
    #[arg(long, value_name = "WHICH", default_value = "command", conflicts_with = "fit")]
    pub(super) exit_code: ExitCode,

    /// Stop a program that only reads values, and allocates no memory, for this long; 0: never
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds)]
    patience: Duration,

    /// Number of trace entries to keep for each device; older ones are lost
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    max_entries: u64,

    /// Record Python stacks, or C++ stacks as well
    #[arg(long, default_value = "python")]
    stacks: StackKind,

    /// Do not look for the variables that keep GPU memory alive
    #[arg(long)]
    no_names: bool,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Changes to a program from outside of it.
#[derive(Debug, Default)]
pub(super) struct Intervention {
    /// Environment variables for the command.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Every optimizer has `foreach=False`.
    pub(super) steps_by_parameter: bool,
}

/// Parses `BATCH=32`.
fn parse_size(text: &str) -> Result<(String, u64), String> {
    let parsed = text.split_once('=').and_then(|(name, size)| Some((name, size.parse().ok()?)));
    match parsed {
        Some((name, size)) if placeholder::is_name(name) && size > 0 => Ok((name.to_owned(), size)),
        _ => Err(format!("give a name and a size, such as BATCH=32, not {text}")),
    }
}

/// The exit code of `oomscope dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExitCode {
    Command,
    Verdict,
}

impl DryRun {
    fn single_rank(&self) -> anyhow::Result<Option<SingleRank>> {
        let devices = self.devices.unwrap_or(SingleRank::DEFAULT_DEVICES);
        let rank = self.world_size.map(|world_size| SingleRank::new(self.rank, world_size, devices));
        rank.transpose()
    }

    pub(super) fn assumed_gpu(&self) -> AssumedGpu {
        AssumedGpu {
            gpu: self.capability.unwrap_or(self.gpu),
            memory: self.memory,
            is_named: self.capability.is_none(),
            devices: self.devices.or(self.world_size.map(|size| size.min(SingleRank::DEFAULT_DEVICES))).unwrap_or(1),
        }
    }

    /// The options with which a dry run has a recorded job's GPU: `total_bytes` of memory, else like `gpu`.
    pub(super) fn for_recording(gpu: &GpuModel, total_bytes: u64, command: &[OsString]) -> anyhow::Result<Self> {
        /// Parsing keeps the defaults of the other options in one place.
        #[derive(Parser)]
        struct Parsed {
            #[command(flatten)]
            args: DryRun,
        }
        let memory = total_bytes.to_string();
        let options = ["dry-run", "--gpu", gpu.name, "--memory", &memory, "--"].map(OsString::from);
        Ok(Parsed::try_parse_from(options.iter().chain(command))?.args)
    }

    /// The sizes that may be the answer of `--fit`.
    pub(super) fn size_step(&self) -> SizeStep {
        if self.power_of_two { SizeStep::PowerOfTwo } else { SizeStep::MultipleOf(self.multiple_of) }
    }

    /// The command to run first.
    pub(super) fn first_command(&self) -> anyhow::Result<Vec<OsString>> {
        match &self.size {
            None => Ok(self.command.clone()),
            Some((name, size)) => {
                placeholder::check(&self.command, name, "--size")?;
                Ok(placeholder::fill(&self.command, name, *size))
            }
        }
    }

    /// Makes a directory with the recorder, the stub and its configuration.
    pub(super) fn prepare(&self, output: Option<&Path>, intervention: Intervention) -> anyhow::Result<RunDirectory> {
        let options = RecorderOptions {
            max_entries: self.max_entries,
            stacks: self.stacks,
            at: SnapshotWhen::Exit,
            keep: 3,
            wait: 10.0,
            names: !self.no_names,
        };
        let rank = self.single_rank()?;
        let mut config = self.assumed_gpu().config(self.patience, rank.is_some(), !self.real_files);
        config.values.clone_from(&self.value);
        config.steps_by_parameter = intervention.steps_by_parameter;
        let config = serde_json::to_string(&config)?;
        let mut files = stub::FILES.to_vec();
        files.push(("dry-run.json", &config));
        let mut environment = rank.map(SingleRank::environment).unwrap_or_default();
        environment.extend(intervention.environment);
        let kind = RunKind { name: "oomscope-dry-run", files: &files, environment: &environment };
        RunDirectory::prepare(output, &options, kind)
    }
}
