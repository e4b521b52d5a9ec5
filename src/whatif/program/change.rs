//! One change to a program, and how sure it is.

use crate::base::warning::words;
use crate::replay::ops::Script;
use crate::stacks::frames::LineId;

words! {
    /// How sure it is that the program, so changed, makes the calls that were replayed.
    pub enum ChangeCertainty {
        /// The change leaves calls out or moves frees, and does nothing else
        Exact = "exact",
        /// Calls are made again, or at another place, where their order in the recording says so
        About = "about",
        /// Sizes follow from what the memory was for, which is itself told from stacks and lives
        Guess = "guess",
    }
}

words! {
    /// A change to a program.
    #[non_exhaustive]
    pub enum ProgramChange {
        /// None
        AsRecorded = "as-recorded",
        /// Nothing that a line asks for is asked for
        WithoutLine = "without-line",
        /// A repeated module keeps its input alone, and makes the rest again in the backward pass
        Checkpoint = "checkpoint",
        /// The optimizer's step makes nothing that it is done with
        OptimizerTemporaries = "optimizer-temporaries",
        /// The optimizer keeps its state in 8 bits
        State8Bit = "state-8-bit",
        /// Its state is shared out among ranks
        StateSharded = "state-sharded",
        /// Its state is on the host
        StateOffloaded = "state-offloaded",
        /// Gradients are gone before the next forward pass
        GradientsGone = "gradients-gone",
        /// What a past step left behind is freed at its end
        LeftBehind = "left-behind",
        /// Half the batch, twice before each step of the optimizer
        HalfBatch = "half-batch",
        /// The model in half precision
        HalfPrecision = "half-precision",
    }
}

/// A program that is changed in one way.
pub(super) struct ChangedProgram {
    pub(super) change: ProgramChange,
    pub(super) sure: ChangeCertainty,
    /// What to change, for a person.
    pub(super) description: String,
    /// The line to change, or that it is about.
    pub(super) line: Option<LineId>,
    /// What the memory that is changed comes to at the peak.
    pub(super) bytes_at_peak: u64,
    pub(super) script: Script,
}
