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

/// Bytes of each confidence.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConfidenceBytes([u64; 4]);

impl ConfidenceBytes {
    /// From the best on.
    const ORDER: [Confidence; 4] = [Confidence::Known, Confidence::High, Confidence::Medium, Confidence::Low];

    pub(crate) fn add(&mut self, confidence: Confidence, bytes: u64) {
        let rank = Self::ORDER.into_iter().position(|one| one == confidence).unwrap_or_default();
        self.0[rank] = self.0[rank].saturating_add(bytes);
    }

    /// The bytes whose confidence is one of the `best` first.
    pub(crate) fn sum_of(&self, best: usize) -> u64 {
        self.0[..best].iter().copied().fold(0, u64::saturating_add)
    }

    /// The confidence that at least half of the bytes have or exceed.
    pub(crate) fn of_half(&self) -> Confidence {
        let all = self.sum_of(4);
        (0..4)
            .find(|rank| self.sum_of(rank + 1) >= all - self.sum_of(rank + 1))
            .map_or(Confidence::Low, |rank| Self::ORDER[rank])
    }
}
