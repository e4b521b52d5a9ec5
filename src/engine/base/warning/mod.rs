//! Warnings about a file: a [`Code`] for scripts, and a sentence for people.
//!
//! In: a code and a sentence, from any room that finds a problem and continues. Out: each warning once, in order of
//! codes. One list defines all codes and their meanings, and a test compares the documentation with it. Knows nothing
//! of the problems themselves.

mod code;
mod words;

use std::collections::BTreeSet;
use std::fmt::Display;

use serde::Serialize;

pub use self::code::Code;
pub use self::words::words;
use crate::base::units::escape_text;

/// Records the history of a job that fails; the program needs no change.
pub const RECORD_COMMAND: &str = "oomscope run -- python train.py";
/// The same for a job that may not fail.
pub const RECORD_TO_END_COMMAND: &str = "oomscope run --at exit -- python train.py";
/// The same with room for more trace entries.
pub const RECORD_MORE_COMMAND: &str = "oomscope run --at exit --max-entries 4M -- python train.py";
/// The call that records a useful history. Its legacy form, `_record_memory_history(True)`, keeps one entry.
pub const RECORD_HISTORY_CALL: &str = "torch.cuda.memory._record_memory_history(max_entries=1_000_000)";

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
    pub fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: escape_text(&message.to_string()) }
    }
}

impl Warnings {
    pub fn add(&mut self, code: Code, message: impl Display) {
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
