//! Dry runs of a job with remedies or at several sizes, and of a serving engine on several GPUs.

use serde::Serialize;

use super::dry_verdict::DryRunVerdict;
use crate::base::warning::words;
use crate::snapshot::Serving;
use crate::stacks::frames::CodeLocation;

/// The JSON of `oomscope dry-run --try`.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct TrialsReport {
    /// The assumed GPU.
    pub gpu: String,
    /// Its memory in bytes, without the CUDA context.
    pub usable_bytes: u64,
    /// The runs in their order. The first changes nothing.
    pub runs: Vec<TrialReport>,
}

/// A dry run with a remedy that needs no change to the program.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TrialReport {
    /// The remedy: allocator settings, `foreach=False in the optimizer` or a smaller size; null in the first run.
    pub remedy: Option<String>,
    /// How the run ends.
    pub outcome: TrialOutcome,
    /// Bytes that no device had reserved at any time; null if the run did not come to its end.
    pub headroom_bytes: Option<u64>,
    /// The size of the request that failed; null if none did.
    pub requested_bytes: Option<u64>,
    /// The line of the request that failed; null if none did.
    pub location: Option<CodeLocation>,
    /// Why a GPU may decide otherwise, or why the end is not known; null if neither.
    pub reason: Option<String>,
    /// Text to copy that applies the remedy; null if the run failed or needs none.
    pub copy: Option<String>,
    /// Path of the program's output; null if it was printed.
    pub output: Option<String>,
    /// The serving engine that the program started; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
}

words! {
    /// How a dry run with a remedy ends.
    #[derive(Default)]
    pub enum TrialOutcome {
        /// It runs to its end
        Ends = "ends",
        /// It runs to its end here; a value of the GPU or unknown memory decides
        MayEnd = "may-end",
        /// A request fails
        Fails = "fails",
        /// A request fails, after more requests were served than in the first run
        FailsLater = "fails-later",
        /// It ends otherwise
        #[default]
        Unknown = "unknown",
        /// The program chooses its allocator settings itself
        NotInEffect = "not-in-effect",
    }
}

impl TrialOutcome {
    /// Whether the program ran to its end.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Ends | Self::MayEnd)
    }
}

/// The JSON of `oomscope fit -- COMMAND`.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct SizeSearchReport {
    /// The placeholder, such as `BATCH`.
    pub name: String,
    /// The sizes that may be the answer, such as `a multiple of 8`; null if all may.
    pub only: Option<String>,
    /// The assumed GPU.
    pub gpu: String,
    /// Its memory in bytes, without the CUDA context.
    pub usable_bytes: u64,
    /// The largest such size that fits; null if none is known to fit, or if every size fits.
    pub largest: Option<u64>,
    /// The smallest size that was run and fails, above all that fit; null if none does.
    pub fails: Option<u64>,
    /// There is no such size between `largest`, or 0, and `fails`. Both were run.
    pub is_exact: bool,
    /// Every size should fit: the memory does not grow with it. No size is confirmed as the largest.
    pub every_size_fits: bool,
    /// Some memory is unknown without a GPU, so the largest may be less.
    pub is_memory_unknown: bool,
    /// The smallest and the largest answer by the data, if they decide about shapes; otherwise null.
    pub by_data: Option<[u64; 2]>,
    /// Sizes with which the program ends with an error of its own, with its last line of output; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSize>,
    /// The dry runs, by size.
    pub runs: Vec<SizeRunReport>,
}

/// A size with which the program ends with an error of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedSize {
    /// The size.
    pub size: u64,
    /// How it ended.
    pub reason: String,
}

/// A dry run at one size.
#[derive(Debug, Clone, Serialize)]
pub struct SizeRunReport {
    /// The size.
    pub size: u64,
    /// It runs to its end.
    pub fits: bool,
    /// It runs to its end under all placements of memory and with all workspaces of libraries.
    pub fits_in_worst_case: bool,
    /// Peak reserved bytes of the device that reserved most.
    pub reserved_bytes: u64,
    /// The size of the request that failed; null if none did.
    pub requested_bytes: Option<u64>,
    /// The line of the request that failed; null if none did.
    pub location: Option<CodeLocation>,
    /// Path of the snapshot.
    pub snapshot: String,
}

impl SizeSearchReport {
    /// The run at `size`.
    pub fn run_at(&self, size: u64) -> Option<&SizeRunReport> {
        self.runs.iter().find(|run| run.size == size)
    }

    /// The largest size that was run and fits, of any kind.
    pub fn largest_run(&self) -> Option<&SizeRunReport> {
        self.runs.iter().rfind(|run| run.fits)
    }
}

/// The JSON of `oomscope plan` for a serving engine.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct ServingPlanReport {
    /// The command that starts the engine.
    pub command: String,
    /// One start for each GPU and number of them.
    pub rows: Vec<ServingPlanRow>,
}

/// A dry run of an engine on one or several GPUs, with the longest `max_model_len` that the memory allows.
#[derive(Debug, Clone, Serialize)]
pub struct ServingPlanRow {
    /// Name of the GPU, as on the command line.
    pub gpu: String,
    /// Number of GPUs that share the model.
    pub gpus: u64,
    /// Memory of one GPU in bytes, without the CUDA context.
    pub usable_bytes: u64,
    /// Whether the engine starts.
    pub verdict: DryRunVerdict,
    /// Why it does not; null if it does.
    pub reason: Option<String>,
    /// The numbers of the engine; null if it did not come to any.
    pub serving: Option<Serving>,
    /// Path of its output.
    pub output: String,
}

impl ServingPlanRow {
    /// Whether the engine starts.
    pub fn is_started(&self) -> bool {
        self.reason.is_none()
    }

    /// `l4` or `2 x l4`.
    pub fn label(&self) -> String {
        if self.gpus > 1 { format!("{} x {}", self.gpus, self.gpu) } else { self.gpu.clone() }
    }
}
