//! Errors in a settings string, worded as the newest PyTorch does.

use std::fmt;

/// PyTorch rejects the settings string.
///
/// Displays PyTorch's message, with a hint in parentheses if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfError {
    message: String,
    help: Option<String>,
}

impl ConfError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub(super) fn with_help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }

    /// The text of the Python exception, without the part about PyTorch's source.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.message.trim_end();
        match &self.help {
            None => f.write_str(message),
            Some(help) => write!(f, "{} ({help})", message.trim_end_matches('.')),
        }
    }
}

impl std::error::Error for ConfError {}
