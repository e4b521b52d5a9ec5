//! What was odd about a file but did not keep it from being read.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::units::plain;

/// One remark: a stable kebab-case code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Warning {
    /// Stable, kebab-case.
    pub code: &'static str,
    /// One sentence with the numbers.
    pub message: String,
}

/// Remarks in order of their codes, each once.
#[derive(Debug, Clone, Default)]
pub struct Warnings(BTreeSet<Warning>);

impl Warnings {
    /// Adds a remark.
    #[expect(clippy::needless_pass_by_value, reason = "callers make the sentence for it")]
    pub fn add(&mut self, code: &'static str, message: String) {
        self.0.insert(Warning { code, message: plain(&message) });
    }

    /// All remarks.
    pub fn to_vec(&self) -> Vec<Warning> {
        self.0.iter().cloned().collect()
    }
}
