//! How sure a prediction is.

use crate::base::warning::words;

words! {
    /// How sure a prediction is: one scale for replays, changes to the program and sizes.
    pub enum Sureness {
        /// It ran so
        Confirmed = "confirmed",
        /// A replay: the model reproduces the recording, and the program makes the same requests or omits some. A size:
        /// predicted without a warning, below twice the largest recorded size
        Checked = "checked",
        /// A replay: calls are repeated or moved to where their order in the recording puts them. A size: predicted without
        /// a warning, but from smaller recordings, and other kernels may need other workspaces
        Should = "should",
        /// A replay: the model does not reproduce the recording, or sizes depend on what the memory was for, which is
        /// inferred from stacks and lifetimes. A size: predicted with a warning
        Estimate = "estimate",
    }
}
