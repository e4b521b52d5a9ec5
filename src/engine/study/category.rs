//! Categories of memory, and the confidence in them.

use crate::base::warning::words;

words! {
    /// The use of a block.
    pub enum Category {
        /// Weights and buffers of a model
        Parameters = "parameters",
        /// Gradients that a backward pass leaves for the optimizer
        Gradients = "gradients",
        /// State that an optimizer keeps between steps
        OptimizerState = "optimizer-state",
        /// Tensors that a forward pass saves for the backward pass
        Activations = "activations",
        /// Keys and values of earlier tokens, which a model that generates text keeps
        KvCache = "kv-cache",
        /// Buffers that collectives send and receive
        Communication = "communication",
        /// Inputs of a model
        Inputs = "inputs",
        /// Memory freed within the phase that allocated it
        Temporaries = "temporaries",
        /// Anything else, or unknown
        Other = "other",
    }
}

words! {
    /// The confidence in a category.
    pub enum Confidence {
        /// Follows from the block's stack or its own lifetime
        High = "high",
        /// Follows from the lifetimes of similar blocks, or from the recorded part of its own
        Medium = "medium",
        /// A guess
        Low = "low",
        /// No inference: the recorder saw how the program uses the block
        Known = "known",
    }
}

pub(crate) type Classification = (Category, Confidence);
