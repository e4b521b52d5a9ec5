//! How certain it is that the program fits at a predicted size.

use crate::base::warning::words;

words! {
    /// How certain it is that a program fits at a size.
    pub enum FitCertainty {
        /// It ran at this size
        Confirmed = "confirmed",
        /// Predicted without a warning, below twice the largest recorded size
        Checked = "checked",
        /// Predicted without a warning, but from smaller recordings: other kernels may need other workspaces
        Should = "should",
        /// Predicted with a warning
        Estimate = "estimate",
    }
}
