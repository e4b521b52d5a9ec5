//! A reason why a check cannot pass although every limit holds.

use serde::Serialize;

use crate::base::warning::words;

words! {
    /// A reason why a check cannot pass.
    pub enum ObjectionCode {
        /// The baseline is of another GPU
        OtherGpu = "other-gpu",
        /// No line of code that holds memory in the baseline holds any now
        OtherProgram = "other-program",
        /// The baseline is of another release of PyTorch
        OtherRelease = "other-release",
        /// Two snapshots have the same name in the baseline
        RepeatedRank = "repeated-rank",
    }
}

/// A reason why a check cannot pass although every limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Objection {
    /// The kind.
    pub code: ObjectionCode,
    /// The value in the baseline; of a repeated rank, the path of its first snapshot.
    pub before: String,
    /// The value now; of a repeated rank, the path of its second snapshot.
    pub after: String,
    /// Whether `--allow-missing` accepts it.
    pub allowed: bool,
}
