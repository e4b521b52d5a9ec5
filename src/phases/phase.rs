//! Phases, and where in a trace they are.

use serde::Serialize;

/// What a program does with memory in the course of a training or inference run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Building, moving or loading a model or an optimizer.
    Init,
    /// Loading or moving what the model is fed.
    Data,
    /// Running the model, and the loss.
    Forward,
    /// The backward pass, with what activation checkpointing computes again.
    Backward,
    /// The optimizer's step, with clipping and unscaling of gradients.
    Optimizer,
    /// Anything else, or nothing that can be told.
    Other,
}

impl Phase {
    /// The word for it, as in the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Data => "data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

/// Entries in a row that belong to one phase: from `start` up to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PhaseRun {
    pub(crate) start: u32,
    pub(crate) phase: Phase,
}
