//! The arguments of `oomscope plan`.

use itertools::Itertools as _;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::allocator::device::{GPUS, GpuModel};
use crate::cli::args::OutputArgs;
use crate::cli::dry_run::parse_known_gpu;
use crate::cli::fit::parse_recording;
use crate::whatif::plan::{PlanOptions, PlanRun};

/// Plan which GPU a job needs, and how large it may be on each
#[derive(Debug, Args)]
#[command(after_help = include_str!("../help/plan.txt"))]
pub(in crate::cli) struct Plan {
    /// Recordings with their sizes, instead of a command: 8=snapshot.pickle
    #[arg(value_name = "SIZE=SNAPSHOT", value_parser = parse_recording)]
    pub(super) recordings: Vec<(u64, PathBuf)>,

    /// GPUs to plan for [default: all known]
    #[arg(long, alias = "gpu", value_name = "NAME,..", value_delimiter = ',', value_parser = parse_known_gpu)]
    gpus: Vec<&'static GpuModel>,

    /// Name the smallest GPU for this size
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    for_size: Option<u64>,

    /// Sizes of the first runs: two or more that every GPU may run
    #[arg(long, value_name = "N,M,..", value_delimiter = ',', default_value = "4,8",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) sizes: Vec<u64>,

    /// Directory of the runs; finished runs are reused
    #[arg(long, value_name = "DIR", default_value = "oomscope-plan")]
    pub(super) runs: PathBuf,

    #[command(flatten)]
    pub(super) output: OutputArgs,

    /// Command and its arguments, with a word in braces for the size
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

impl Plan {
    /// The GPUs to plan for, in order of their memory.
    pub(super) fn gpus(&self) -> Vec<&'static GpuModel> {
        let gpus = if self.gpus.is_empty() { GPUS.iter().collect() } else { self.gpus.clone() };
        gpus.into_iter().sorted_by_key(|gpu| (gpu.usable_bytes(), gpu.name)).dedup().collect()
    }

    /// The options of a plan without changes of the program.
    pub(super) fn options<'o>(
        &self,
        name: &'o str,
        gpus: &'o [&'static GpuModel],
        runs: &'o [PlanRun],
    ) -> PlanOptions<'o> {
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let command = (!words.is_empty()).then(|| words.join(" "));
        PlanOptions { name, command, gpus, runs, wanted_size: self.for_size, changes: false }
    }
}
