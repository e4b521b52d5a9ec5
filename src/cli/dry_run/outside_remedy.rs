//! Remedies that need no change to the program.

use serde_json::Value;

/// A remedy from outside of the program, which needs no change to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OutsideRemedy {
    /// Options to set, and `KEY:default` for one to remove.
    Settings(String),
    /// `foreach=False` in every optimizer.
    StepByParameter,
    /// A serving engine starts again, with the code that it compiled.
    LaterStart,
    /// An option of a serving engine.
    EngineOption { name: &'static str, value: Value },
}

impl OutsideRemedy {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::EngineOption { name, value } => format!("{name}={}", format_value(value)),
            Self::LaterStart => "a later start".to_owned(),
            Self::Settings(change) => change.clone(),
            Self::StepByParameter => "foreach=False in the optimizer".to_owned(),
        }
    }
}

/// An option and its value, as on a command line.
pub(super) fn option_words(name: &str, value: &Value) -> String {
    format!("--{} {}", name.replace('_', "-"), format_value(value))
}

/// A value of an option, as on a command line.
fn format_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
