//! The result of checking one figure against one limit.

use std::cmp::Ordering;

use serde::Serialize;

use crate::base::warning::{self, words};
use crate::stacks::frames::FrameReport;
use crate::study::figures::{Amount, Figure, Unit};

words! {
    /// The effect of a violated limit.
    pub enum Severity {
        /// The check fails
        Fail = "fail",
        /// The check warns and passes
        Warn = "warn",
    }
}

/// One figure of one device, checked against one limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The figure.
    pub code: Figure,
    /// The effect if the limit is violated.
    pub severity: Severity,
    /// Path of the snapshot, as given.
    pub path: String,
    /// Device number.
    pub device: u64,
    /// Unit of `limit` and `actual`.
    pub unit: Unit,
    /// The maximum that is allowed.
    pub limit: Amount,
    /// The figure's value, negative if it has shrunk; null if the file does not show it, which is a violation unless
    /// `--allow-missing` allows it.
    pub actual: Option<Amount>,
    /// Why `actual` is unknown or only a lower bound that already exceeds the limit: `no-trace`, `history-lost`,
    /// `truncated`, `trace-inconsistent`, `unknown-action`, `not-in-baseline` or `not-checked` (`path` is then the name in the baseline).
    /// Absent if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<warning::Code>,
    /// Whether the limit holds.
    pub passed: bool,
    /// The result in one sentence.
    pub message: String,
    /// The lines of user code that contribute most; absent if the limit holds or no stacks were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<CodeLine>,
}

/// A line of user code and its part of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CodeLine {
    /// The line.
    #[serde(flatten)]
    pub frame: FrameReport,
    /// Path of the file in the repository; null if it is not there.
    pub source: Option<String>,
    /// Bytes that the line contributes.
    pub bytes: u64,
    /// The kind of these bytes, in a phrase.
    pub what: &'static str,
}

impl Finding {
    /// Limit and actual figure, with enough digits to tell them apart.
    pub fn format_figures(&self) -> (String, String) {
        format_distinguishably(self.limit, self.actual)
    }

    /// Severity of a violation, for comparing findings of one code: the ratio to the limit, then the figure itself,
    /// because the limit may be 0. An unknown figure is worse than one that passes, and no violation that is known.
    pub fn excess(&self) -> (f64, f64) {
        let Some(actual) = self.actual else { return (1.0, f64::INFINITY) };
        let times = actual.as_f64() / self.limit.as_f64();
        (if times.is_nan() { 0.0 } else { times }, actual.as_f64())
    }
}

/// Maximum number of decimals of a percentage; ratios that differ only beyond them are equal.
const MAX_DECIMALS: usize = 14;

/// See [`Finding::format_figures`].
pub(super) fn format_distinguishably(limit: Amount, actual: Option<Amount>) -> (String, String) {
    let Some(actual) = actual else { return (limit.to_string(), "unknown".to_owned()) };
    if limit.to_string() == actual.to_string() && limit.partial_cmp(&actual).is_none_or(Ordering::is_ne) {
        let format = |decimals| (limit.format_exactly(decimals), actual.format_exactly(decimals));
        return (2..MAX_DECIMALS)
            .map(format)
            .find(|(limit, actual)| limit != actual)
            .unwrap_or_else(|| format(MAX_DECIMALS));
    }
    (limit.to_string(), actual.to_string())
}

pub(super) fn holds(limit: Amount, actual: Option<Amount>) -> bool {
    actual.is_some_and(|actual| actual <= limit)
}

/// A warning about one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileWarning {
    /// Path of the snapshot, as given.
    pub path: String,
    /// The kind of warning.
    pub code: warning::Code,
    /// The warning in one sentence.
    pub message: String,
}

impl FileWarning {
    pub(super) fn new(path: &str, code: warning::Code, message: &str) -> Self {
        Self { path: path.to_owned(), code, message: message.to_owned() }
    }
}
