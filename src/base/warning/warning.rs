//! Remarks, and a set of them.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Code;
use crate::base::units::escape_text;

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Warning {
    /// What it is about.
    pub code: Code,
    /// One sentence with the numbers.
    pub message: String,
}

/// Remarks in order of their codes, each once.
#[derive(Debug, Clone, Default)]
pub struct Warnings(BTreeSet<Warning>);

impl Warning {
    /// A remark; of `message`, what could steer a terminal is left out.
    pub fn new(code: Code, message: impl AsRef<str>) -> Self {
        Self { code, message: escape_text(message.as_ref()) }
    }
}

impl Warnings {
    /// Adds a remark.
    pub fn add(&mut self, code: Code, message: impl AsRef<str>) {
        self.0.insert(Warning::new(code, message));
    }

    /// All remarks.
    pub fn to_vec(&self) -> Vec<Warning> {
        self.0.iter().cloned().collect()
    }
}

impl Extend<Warning> for Warnings {
    fn extend<T: IntoIterator<Item = Warning>>(&mut self, warnings: T) {
        self.0.extend(warnings);
    }
}
