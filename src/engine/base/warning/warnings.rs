//! A warning, and a set of warnings.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Code;
use crate::base::units::escape_text;

/// A problem with a file, or with a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Warning {
    /// One of the codes in the table of warnings.
    pub code: Code,
    /// One sentence for people, with figures.
    pub message: String,
}

/// Warnings without duplicates, in order of codes.
#[derive(Debug, Clone, Default)]
pub struct Warnings(BTreeSet<Warning>);

impl Warning {
    /// Escapes characters of `message` that could control a terminal.
    pub fn new(code: Code, message: impl AsRef<str>) -> Self {
        Self { code, message: escape_text(message.as_ref()) }
    }
}

impl Warnings {
    pub fn add(&mut self, code: Code, message: impl AsRef<str>) {
        self.0.insert(Warning::new(code, message));
    }

    pub fn has(&self, code: Code) -> bool {
        self.0.iter().any(|warning| warning.code == code)
    }

    pub fn to_vec(&self) -> Vec<Warning> {
        self.0.iter().cloned().collect()
    }
}

impl Extend<Warning> for Warnings {
    fn extend<T: IntoIterator<Item = Warning>>(&mut self, warnings: T) {
        self.0.extend(warnings);
    }
}
