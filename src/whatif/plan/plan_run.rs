//! A run that confirms or corrects a plan.

use serde::{Deserialize, Serialize};

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
