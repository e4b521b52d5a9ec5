//! The options of a dry run that do not depend on what it is for.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Command, FromArgMatches as _};
use serde_json::{Value, json};

use crate::allocator::SMALL_SEGMENT;
use crate::allocator::device::{GPUS, GpuModel};
use crate::base::units::{MIB, size};
use crate::cli::args::{gpu_or, parse_capacity};
use crate::cli::run::{RecorderOptions, RunDirectory, files, parse_count, parse_seconds};

/// Changes to a program from outside of it.
#[derive(Debug, Default)]
pub(in crate::cli) struct Intervention {
    /// Environment variables for the command.
    pub(super) environment: Vec<(&'static str, String)>,
    /// Every optimizer has `foreach=False`.
    pub(super) steps_by_parameter: bool,
    /// Values of reads, beside those of `--value`.
    pub(super) values: Vec<SetValue>,
    /// Options of a serving engine.
    pub(super) engine_options: BTreeMap<&'static str, Value>,
}

/// The variable's names: that of PyTorch 2.9 and later, and that of all releases.
const SETTINGS_VARIABLES: [&str; 2] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"];

impl Intervention {
    /// Sets the allocator settings.
    pub(in crate::cli) fn with_settings(settings: &str) -> Self {
        let environment = SETTINGS_VARIABLES.map(|name| (name, settings.to_owned()));
        Self { environment: environment.into(), ..Self::default() }
    }

    /// Sets an option of a serving engine.
    pub(in crate::cli) fn with_engine_options(options: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self { engine_options: options.into_iter().collect(), ..Self::default() }
    }
}

/// The assumed machine, and what a program reads there.
#[derive(Debug, Default, Clone, Args)]
pub(in crate::cli) struct MachineArgs {
    /// GPU to simulate [default: h100]
    #[arg(long, value_name = "NAME", value_parser = gpu_or(parse_gpu), hide_possible_values = true)]
    gpu: Option<&'static GpuModel>,

    /// Device memory, e.g. 40GiB [default: that of the GPU]
    #[arg(long, visible_alias = "capacity", value_name = "SIZE", value_parser = parse_capacity)]
    memory: Option<u64>,

    /// Number of devices, at least one for each rank of torchrun [default: 1; 8 with --rank]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    devices: Option<u64>,

    /// Run the command as rank K of a job of N ranks, without the others
    #[arg(long, value_name = "K/N", value_parser = parse_rank)]
    rank: Option<RankOfJob>,

    /// Value that the program reads from the GPU at a line, instead of zero: train.py:12=True, or a number
    ///
    /// May be repeated. At a line with `nonzero`, a mask or `unique` it is the number of elements.
    #[arg(long, value_name = "FILE:LINE=V", value_parser = parse_value)]
    pub(super) value: Vec<SetValue>,
}

/// How to run a command in a dry run.
#[derive(Debug, Args)]
pub(in crate::cli) struct DryRunOptions {
    #[command(flatten)]
    pub(in crate::cli) machine: MachineArgs,

    /// Let the program write its files in their own places, and loggers send the run to services
    ///
    /// Without this option, everything that Python writes goes to DIR/files and is read back from there, because the
    /// tensors of a dry run are zero and must not replace real ones. New files in temporary and cache directories stay
    /// in place.
    #[arg(long)]
    pub(in crate::cli) real_files: bool,

    /// Length of generated texts: the maximum that the program sets, the most memory, or one token
    ///
    /// For `generate` of transformers. Which token ends a text depends on values of the GPU.
    #[arg(long, value_name = "max|min", default_value = "max", value_parser = ["max", "min"])]
    generate: String,

    /// Stop a program that only reads values, and allocates no memory, for this long; 0: never
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds)]
    patience: Duration,

    /// Number of trace entries to keep for each device; older ones are lost
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    max_entries: u64,

    /// No other run at the same time may use its directory.
    #[arg(skip)]
    pub(in crate::cli) is_alone: bool,
}

impl MachineArgs {
    fn model(&self) -> &'static GpuModel {
        self.gpu.unwrap_or_else(GpuModel::current)
    }

    /// The memory of a device, in whole MiB as the stub takes it.
    fn total_bytes(&self) -> u64 {
        self.memory.unwrap_or(self.model().total_bytes()) / MIB * MIB
    }

    /// The memory of a device without the CUDA context.
    pub(in crate::cli) fn usable_bytes(&self) -> u64 {
        self.total_bytes().saturating_sub(self.model().context_mib * MIB)
    }

    /// Fails if the CUDA context leaves no memory to PyTorch.
    pub(in crate::cli) fn check_memory(&self) -> anyhow::Result<()> {
        if self.usable_bytes() < SMALL_SEGMENT {
            let (gpu, total) = (self.model(), size(self.total_bytes()));
            let context = size(gpu.context_mib * MIB);
            bail!("--memory {total}: the CUDA context of {} takes {context}, which leaves nothing", gpu.product);
        }
        Ok(())
    }

    pub(in crate::cli) fn name(&self) -> String {
        match self.memory {
            None => self.model().product.to_owned(),
            Some(_) => format!("{} with {}", self.model().product, size(self.total_bytes())),
        }
    }

    /// The variables by which the stub knows the GPU.
    fn environment(&self) -> BTreeMap<&'static str, String> {
        let gpu = self.model();
        let ranks = self.rank.map(|(_, ranks)| ranks.min(DEFAULT_DEVICES));
        let devices = self.devices.or(ranks).unwrap_or(1);
        BTreeMap::from([
            ("STUBCUDA_NAME", gpu.product.to_owned()),
            ("STUBCUDA_CC", gpu.capability.to_string()),
            ("STUBCUDA_SMS", gpu.multiprocessors.to_string()),
            ("STUBCUDA_THREADS", gpu.threads_per_multiprocessor.to_string()),
            ("STUBCUDA_SHARED", gpu.shared_bytes.to_string()),
            ("STUBCUDA_L2", gpu.l2_bytes.to_string()),
            ("STUBCUDA_TOTAL_MIB", (self.total_bytes() / MIB).to_string()),
            ("STUBCUDA_OTHER_MIB", gpu.context_mib.to_string()),
            ("STUBCUDA_DEVICES", devices.to_string()),
        ])
    }

    /// Whether a GPU is described.
    pub(in crate::cli) fn is_gpu_given(&self) -> bool {
        self.gpu.is_some() || self.memory.is_some() || self.devices.is_some() || self.rank.is_some()
    }
}

impl DryRunOptions {
    /// The options of a dry run on `machine`. Parsing keeps the defaults of the others in one place.
    pub(in crate::cli) fn on_machine(machine: MachineArgs) -> anyhow::Result<Self> {
        let parsed = Self::augment_args(Command::new("dry-run")).try_get_matches_from(["dry-run"])?;
        Ok(Self { machine, ..Self::from_arg_matches(&parsed)? })
    }

    /// The options of a dry run on the known GPU `gpu`, with `memory` bytes in place of its own.
    pub(in crate::cli) fn on_gpu(gpu: &str, memory: Option<u64>) -> anyhow::Result<Self> {
        Self::on_machine(MachineArgs { gpu: GpuModel::find(gpu), memory, ..MachineArgs::default() })
    }

    /// Makes a directory with the recorder, the stub and its configuration.
    pub(in crate::cli) fn prepare(
        &self,
        output: Option<&Path>,
        intervention: Intervention,
    ) -> anyhow::Result<RunDirectory> {
        let [stacks, at] = ["python", "exit"].map(str::to_owned);
        let options = RecorderOptions { max_entries: self.max_entries, stacks, at, keep: 3, names: true };
        let MachineArgs { devices, rank, value, .. } = &self.machine;
        let gpu = self.machine.model();
        let program = std::env::current_exe().ok().and_then(|program| program.into_os_string().into_string().ok());
        let values: Vec<&SetValue> = value.iter().chain(&intervention.values).collect();
        // For the stub and the recorder.
        let config = json!({
            "gpu": self.machine.name(),
            "capability": gpu.format_capability(),
            "total_bytes": self.machine.total_bytes(),
            "context_bytes": gpu.context_mib * MIB,
            "program": program, // this one, which writes the page
            "patience": self.patience.as_secs_f64(),
            "alone": rank.is_some(),
            "redirect_files": !self.real_files,
            "values": values,
            "generate": self.generate,
            "steps_by_parameter": intervention.steps_by_parameter,
            "engine_options": intervention.engine_options,
            "environment": self.machine.environment(),
        })
        .to_string();
        let mut files = [PYTHON, STUB].concat();
        files.push(("dry-run.json", &config));
        let mut directory = RunDirectory::prepare(output, &options, "oomscope-dry-run", &files, !self.is_alone)?;
        let devices = devices.unwrap_or(DEFAULT_DEVICES);
        directory.environment = rank.map(|rank| rank_environment(rank, devices)).unwrap_or_default();
        directory.environment.extend(intervention.environment);
        Ok(directory)
    }
}

/// The stub of CUDA and what brings it into a program, as text.
const PYTHON: &[(&str, &str)] = files! {
    "_oomscope/_", "python/oomscope/_", ".py",
    "dry_run" "draws" "children" "ending" "files" "kernels" "generation" "observed" "operators" "ranks" "serving" "sglang"
    "shadow" "stub" "triton" "usage" "values" "vllm"
};

const STUB: &[(&str, &str)] = files! {
    "stub/", "stub/", "",
    "stub.c" "allocation.c" "blas.c" "convolutions.c" "copies.c" "devices.c" "dnn.c" "fft.c" "kernels.c" "ledger.c"
    "lookup.c" "memory.c" "nccl.c" "nvml.c" "operators.c" "rnn.c" "solvers.c" "streams.c" "workspaces.c"
    "crt/host_defines.h"
};

/// Parses the name of a known GPU.
pub(in crate::cli) fn parse_known_gpu(text: &str) -> Result<&'static GpuModel, String> {
    GpuModel::find(text).ok_or_else(|| {
        let names: Vec<&str> = GPUS.iter().map(|gpu| gpu.name).collect();
        format!("known GPUs: {}", names.join(", "))
    })
}

/// The same where the memory can be given.
fn parse_gpu(text: &str) -> Result<&'static GpuModel, String> {
    parse_known_gpu(text).map_err(|known| format!("{known}; for another, name one like it and give --memory"))
}

/// The value that reads of the GPU at a source line give: file, line and value, as `python/oomscope/_values.py` takes
/// them.
type SetValue = (String, u64, String);

/// In place of a value: another one than a run without `--value` would give.
pub(super) const ANOTHER: &str = "another";

/// Parses `train.py:12=True`, `train.py:12=64` or `train.py:12=0.5`.
fn parse_value(text: &str) -> Result<SetValue, String> {
    let parsed = text.rsplit_once('=').and_then(|(place, value)| {
        let (file, line) = place.rsplit_once(':')?;
        let is_value = matches!(value, "True" | "False") || value.parse::<f64>().is_ok();
        (is_value && !file.is_empty()).then_some((file.to_owned(), line.parse().ok()?, value.to_owned()))
    });
    parsed.ok_or_else(|| format!("give a line and a value, such as train.py:12=True or train.py:12=64, not {text}"))
}

/// `--rank 3/64`: the rank and the number of ranks.
type RankOfJob = (u64, u64);

/// Parses `3/64`.
fn parse_rank(text: &str) -> Result<RankOfJob, String> {
    let parsed = text.split_once('/').and_then(|(rank, ranks)| Some((rank.parse().ok()?, ranks.parse().ok()?)));
    match parsed {
        Some((rank, ranks)) if rank < ranks => Ok((rank, ranks)),
        Some((_, ranks @ 1..)) => Err(format!("the ranks of {ranks} are 0 to {}", ranks - 1)),
        _ => Err("give a rank and the number of ranks, such as 3/64".to_owned()),
    }
}

/// Default number of GPUs of a machine: most machines for multi-node jobs have 8.
const DEFAULT_DEVICES: u64 = 8;

/// The environment variables that torchrun would set for a rank on a machine with this number of `devices`.
fn rank_environment((rank, world_size): RankOfJob, devices: u64) -> Vec<(&'static str, String)> {
    let on_machine = devices.min(world_size);
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", world_size.to_string()),
        ("LOCAL_RANK", (rank % on_machine).to_string()),
        ("LOCAL_WORLD_SIZE", on_machine.to_string()),
        ("GROUP_RANK", (rank / on_machine).to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", "29500".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::{parse_rank, parse_value, rank_environment};

    #[test]
    fn a_line_and_a_value_are_read() {
        for (text, line, value) in [("a/train.py:12=True", 12, "True"), ("a/train.py:3=-0.5", 3, "-0.5")] {
            assert_eq!(parse_value(text), Ok(("a/train.py".to_owned(), line, value.to_owned())));
        }
        for wrong in ["train.py:12", "train.py=1", ":12=1", "train.py:x=1", "train.py:12=yes", "train.py:12="] {
            assert!(parse_value(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rank_gets_the_environment_of_torchrun() {
        for (job, devices, ranks) in
            [("11/64", 8, [11, 64, 3, 8, 1]), ("1/2", 8, [1, 2, 1, 2, 0]), ("3/64", 1, [3, 64, 0, 1, 3])]
        {
            let environment = rank_environment(parse_rank(job).unwrap(), devices);
            assert!(
                environment.iter().map(|(_, value)| value).take(5).eq(&ranks.map(|rank| rank.to_string())),
                "{job}"
            );
        }
        assert!(["64/64", "3", "0/0", "a/2", "-1/2"].iter().all(|wrong| parse_rank(wrong).is_err()));
    }
}
