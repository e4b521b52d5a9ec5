//! The phases of a training or inference program.

use crate::base::warning::words;

words! {
    /// The part of the program that allocated.
    pub enum Phase {
        /// Building, moving or loading a model or optimizer
        Init = "init",
        /// Loading or moving the model's inputs
        Data = "data",
        /// The forward pass, including the loss
        Forward = "forward",
        /// The backward pass, including recomputation by activation checkpointing
        Backward = "backward",
        /// The optimizer step, including gradient clipping and unscaling
        Optimizer = "optimizer",
        /// Anything else, or unknown
        Other = "other",
    }
}

/// Consecutive entries of one phase, from entry `start` to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseRun {
    pub start: u32,
    pub phase: Phase,
}
