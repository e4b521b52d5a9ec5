//! Phases, and where in a trace they are.

use crate::base::warning::words;

words! {
    /// What a program does with memory in the course of a training or inference run.
    #[non_exhaustive]
    pub enum Phase {
        /// Building, moving or loading a model or an optimizer
        Init = "init",
        /// Loading or moving what the model is fed
        Data = "data",
        /// Running the model, and the loss
        Forward = "forward",
        /// The backward pass, with what activation checkpointing computes again
        Backward = "backward",
        /// The optimizer's step, with clipping and unscaling of gradients
        Optimizer = "optimizer",
        /// Anything else, or nothing that can be told
        Other = "other",
    }
}

/// Entries in a row that belong to one phase: from `start` up to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhaseRun {
    pub(crate) start: u32,
    pub(crate) phase: Phase,
}
