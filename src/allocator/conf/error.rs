//! What is wrong with a string of settings, in the words of the newest PyTorch.

use std::fmt;

/// A string that PyTorch refuses.
///
/// Displayed as one sentence: PyTorch's own, and in brackets what helps to mend the string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfError {
    words: String,
    help: Option<String>,
}

impl ConfError {
    pub(super) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), help: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    /// The text of the exception in Python, less what it says of PyTorch's own source.
    pub fn words(&self) -> &str {
        &self.words
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words.trim_end();
        match &self.help {
            None => f.write_str(words),
            Some(help) => write!(f, "{} ({help})", words.trim_end_matches('.')),
        }
    }
}

impl std::error::Error for ConfError {}
