//! The largest size that fits one GPU with one change.

use serde::{Deserialize, Serialize};

use crate::base::warning::words;
use crate::stacks::frames::CodeLocation;
use crate::whatif::Sureness;
use crate::whatif::fit::PredictedFailure;

words! {
    /// A change that a plan tries.
    pub enum PlanChange {
        /// Nothing
        AsIs = "as-is",
        /// The allocator setting `expandable_segments:True`
        ExpandableSegments = "expandable-segments",
        /// Activation checkpointing of all repeated modules, or of the one that holds most if that saves more
        Checkpoint = "checkpoint",
    }
}

/// The largest size that fits one GPU with one change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanCell {
    /// The change.
    pub change: PlanChange,
    /// The largest size below which all fit; 0 if none fits, null if every size does.
    pub size: Option<u64>,
    /// How certain that size is: `confirmed` if a dry run at it ended on this GPU.
    pub certainty: Sureness,
    /// How certain it is that the changed program makes exactly the replayed calls.
    pub sure: Sureness,
    /// The source line to change; null if there is none.
    pub location: Option<CodeLocation>,
    /// Further source lines that must change with it.
    pub other_locations: Vec<CodeLocation>,
    /// Device memory - reserved bytes at the peak of that size; null without a size, and for changes of the program.
    pub unreserved_bytes: Option<u64>,
    /// The first request that fails at the next size, `size` + 1; null for changes of the program.
    pub fails: Option<PredictedFailure>,
}

/// A run of the program on a GPU, or a dry run for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRun {
    /// Name of the GPU.
    pub gpu: String,
    /// Whether it ran with `expandable_segments:True`.
    pub expandable_segments: bool,
    /// The size.
    pub size: u64,
    /// Whether it ran to its end.
    pub fits: bool,
    /// Whether no value of the GPU, and no memory that only a GPU knows, may decide otherwise.
    pub is_certain: bool,
    /// Peak of reserved bytes.
    pub reserved_bytes: u64,
    /// Path of a snapshot of the run.
    pub snapshot: String,
}
