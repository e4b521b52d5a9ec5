//! Why nothing is predicted.

use serde::Serialize;

use crate::base::warning::words;

words! {
    /// Why recordings predict no other size.
    pub enum RefusalCode {
        /// Most of the memory at the peak was requested by other stacks: another program, or another path of the code
        DifferentPrograms = "different-programs",
        /// An option does not apply to these recordings
        InvalidOption = "invalid-option",
        /// No device has a trace in all recordings
        NoCommonDevice = "no-common-device",
        /// Two recordings have the same size
        SameSize = "same-size",
        /// The recordings do not show how the program grows
        TooFewSizes = "too-few-sizes",
    }
}

/// The JSON of `oomscope fit` if it predicts nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct FitRefusal {
    /// The reason.
    pub code: RefusalCode,
    /// The share of the memory at the peak that was requested by the same stacks in all recordings; null if they were
    /// not compared.
    pub paired_ratio: Option<f64>,
    /// The reason as a sentence.
    #[serde(skip)]
    pub sentence: String,
}

impl FitRefusal {
    pub(super) fn new(code: RefusalCode, sentence: impl Into<String>) -> Self {
        Self { code, paired_ratio: None, sentence: sentence.into() }
    }
}
