//! A serving engine, started on several GPUs.

use serde::Serialize;

use super::dry_verdict::DryRunVerdict;
use crate::snapshot::Serving;

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
