//! How sure a replay is.

use crate::base::warning::words;

words! {
    /// How sure a replay is.
    pub enum Sureness {
        /// The model reproduces the recording, and the program makes the same requests or omits some
        Exact = "exact",
        /// Calls are repeated or moved, and their place is inferred from the order of the recorded calls
        About = "about",
        /// Sizes depend on what the memory was for, which is inferred from stacks and lifetimes
        Guess = "guess",
        /// The model does not reproduce the recording
        Estimate = "estimate",
    }
}
