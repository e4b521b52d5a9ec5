//! What memory is for, and how sure that is.

use crate::base::warning::words;

words! {
    /// What memory is for.
    #[non_exhaustive]
    pub enum Category {
        /// Weights of a model, with its buffers
        Parameters = "parameters",
        /// What a backward pass leaves for the optimizer
        Gradients = "gradients",
        /// What an optimizer keeps from step to step
        OptimizerState = "optimizer-state",
        /// What a forward pass leaves for the backward pass
        Activations = "activations",
        /// What collectives of several processes send and receive
        Communication = "communication",
        /// What a model is fed
        Inputs = "inputs",
        /// What is gone before the phase that made it ends
        Temporaries = "temporaries",
        /// Anything else, or nothing that can be told
        Other = "other",
    }
}

words! {
    /// How sure a category is.
    pub enum Confidence {
        /// Its stack or its own life says so
        High = "high",
        /// The life of blocks like it says so, or its own life as far as it is recorded
        Medium = "medium",
        /// A guess
        Low = "low",
    }
}

/// What a block is for, and how sure that is.
pub(super) type Judged = (Category, Confidence);
