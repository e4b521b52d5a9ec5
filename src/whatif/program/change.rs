//! One change to a program.

use crate::base::warning::words;
use crate::replay::ops::Script;
use crate::stacks::frames::LineId;
use crate::whatif::sureness::Sureness;

words! {
    /// A change to a program.
    #[non_exhaustive]
    pub enum ProgramChange {
        /// No change
        AsRecorded = "as-recorded",
        /// A repeated module keeps only its input and recomputes the rest in the backward pass
        Checkpoint = "checkpoint",
        /// The optimizer's step makes no temporaries
        OptimizerTemporaries = "optimizer-temporaries",
        /// The optimizer works on one parameter after the other (`foreach=False`)
        OptimizerForeach = "optimizer-foreach",
        /// The optimizer keeps its state in 8 bits
        State8Bit = "state-8-bit",
        /// The optimizer's state is sharded across ranks
        StateSharded = "state-sharded",
        /// The optimizer's state is on the host
        StateOffloaded = "state-offloaded",
        /// Gradients are freed before the next forward pass
        GradientsGone = "gradients-gone",
        /// Memory that a step leaves behind is freed at its end
        LeftBehind = "left-behind",
        /// Half the batch, in two passes before each optimizer step
        HalfBatch = "half-batch",
        /// The model is in half precision
        HalfPrecision = "half-precision",
    }
}

/// A recorded program with one change.
#[derive(Clone)]
pub(in crate::whatif) struct ChangedProgram {
    pub(super) change: ProgramChange,
    pub(in crate::whatif) certainty: Sureness,
    /// The change in words.
    pub(super) description: String,
    /// The source line to change, or that allocates most of the changed memory.
    pub(in crate::whatif) line: Option<LineId>,
    /// Further lines that must change with it.
    pub(in crate::whatif) other_lines: Vec<LineId>,
    /// The changed blocks' bytes at the peak.
    pub(super) bytes_at_peak: u64,
    pub(in crate::whatif) script: Script,
}
