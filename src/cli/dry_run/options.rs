//! The options of a dry run that do not depend on what it is for.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::assumed_gpu::{AssumedGpu, GeneratedLength, parse_capability, parse_gpu};
use super::set_value::{SetValue, parse_value};
use super::single_rank::SingleRank;
use super::stub;
use crate::allocator::device::GpuModel;
use crate::cli::args::parse_capacity;
use crate::cli::run::{RecorderOptions, RunDirectory, RunKind, SnapshotWhen, StackKind, parse_count, parse_seconds};

/// Changes to a program from outside of it.
#[derive(Debug, Default)]
pub(in crate::cli) struct Intervention {
    /// Environment variables for the command.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Every optimizer has `foreach=False`.
    pub(super) steps_by_parameter: bool,
}

/// The variable's names: that of PyTorch 2.9 and later, and that of all releases.
const SETTINGS_VARIABLES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

impl Intervention {
    /// Sets the allocator settings.
    pub(in crate::cli) fn with_settings(settings: &str) -> Self {
        let environment = SETTINGS_VARIABLES.map(|name| (name, settings.to_owned()));
        Self { environment: environment.into(), ..Self::default() }
    }
}

/// The assumed GPU, and how to run a command on it.
#[derive(Debug, Args)]
pub(in crate::cli) struct DryRunOptions {
    /// GPU to simulate [default: h100]
    #[arg(long, value_name = "NAME", value_parser = parse_gpu)]
    gpu: Option<&'static GpuModel>,

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

    /// Let the program write its files in their own places, and loggers send the run to services
    ///
    /// Without this option, everything that Python writes goes to DIR/files and is read back from there, because the
    /// tensors of a dry run are zero and must not replace real ones. New files in temporary and cache directories stay
    /// in place.
    #[arg(long)]
    pub(in crate::cli) real_files: bool,

    /// Value that the program reads from the GPU at a line, instead of zero: train.py:12=True, or a number
    ///
    /// May be repeated. At a line with `nonzero`, a mask or `unique` it is the number of elements.
    #[arg(long, value_name = "FILE:LINE=V", value_parser = parse_value)]
    value: Vec<SetValue>,

    /// Length of generated texts: the maximum that the program sets, the most memory, or one token
    ///
    /// For `generate` of transformers. Which token ends a text depends on values of the GPU.
    #[arg(long, value_name = "max|min", default_value = "max")]
    generate: GeneratedLength,

    /// Stop a program that only reads values, and allocates no memory, for this long; 0: never
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds)]
    patience: Duration,

    /// Number of trace entries to keep for each device; older ones are lost
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    max_entries: u64,

    /// Do not look for the variables that keep GPU memory alive
    #[arg(long)]
    no_names: bool,
}

impl DryRunOptions {
    /// Whether a GPU is described.
    pub(in crate::cli) fn is_gpu_given(&self) -> bool {
        self.gpu.is_some() || self.memory.is_some() || self.devices.is_some() || self.world_size.is_some()
    }

    fn single_rank(&self) -> anyhow::Result<Option<SingleRank>> {
        let devices = self.devices.unwrap_or(SingleRank::DEFAULT_DEVICES);
        let rank = self.world_size.map(|world_size| SingleRank::new(self.rank, world_size, devices));
        rank.transpose()
    }

    pub(in crate::cli) fn assumed_gpu(&self) -> AssumedGpu {
        AssumedGpu {
            gpu: self.capability.or(self.gpu).unwrap_or_else(GpuModel::current),
            memory: self.memory,
            is_named: self.capability.is_none(),
            devices: self.devices.or(self.world_size.map(|size| size.min(SingleRank::DEFAULT_DEVICES))).unwrap_or(1),
        }
    }

    /// Makes a directory with the recorder, the stub and its configuration.
    pub(in crate::cli) fn prepare(
        &self,
        output: Option<&Path>,
        intervention: Intervention,
    ) -> anyhow::Result<RunDirectory> {
        let options = RecorderOptions {
            max_entries: self.max_entries,
            stacks: StackKind::Python,
            at: SnapshotWhen::Exit,
            keep: 3,
            wait: 10.0,
            names: !self.no_names,
        };
        let rank = self.single_rank()?;
        let mut config = self.assumed_gpu().config(self.patience, rank.is_some(), !self.real_files);
        config.values.clone_from(&self.value);
        config.generate = self.generate;
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
