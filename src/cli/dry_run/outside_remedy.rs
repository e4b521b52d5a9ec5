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
    /// Options of a serving engine.
    EngineOptions(Vec<(&'static str, Value)>),
}

impl OutsideRemedy {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::EngineOptions(options) => join(options, ", ", |name, value| format!("{name}={value}")),
            Self::LaterStart => "a later start".to_owned(),
            Self::Settings(change) => change.clone(),
            Self::StepByParameter => "foreach=False in the optimizer".to_owned(),
        }
    }
}

/// Options and their values, as on a command line.
pub(super) fn option_words(options: &[(&str, Value)]) -> String {
    join(options, " ", |name, value| format!("--{} {value}", name.replace('_', "-")))
}

fn join(options: &[(&str, Value)], separator: &str, format: impl Fn(&str, &str) -> String) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    options.iter().map(|(name, value)| format(name, &text(value))).collect::<Vec<_>>().join(separator)
}
