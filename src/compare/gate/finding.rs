//! One limit held against one figure.

use std::cmp::Ordering;

use serde::Serialize;

use crate::base::warning::{self, words};
use crate::stacks::frames::FrameReport;
use crate::study::figures::{Amount, Figure, Unit, UnknownReason};

words! {
    /// What it means when a limit does not hold.
    pub enum Severity {
        /// The gate fails
        Fail = "fail",
        /// It is said, and the gate passes
        Warn = "warn",
    }
}

/// One limit held against one figure of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub code: Figure,
    /// What it means if it has not passed.
    pub severity: Severity,
    /// The snapshot, as given.
    pub path: String,
    /// Device number.
    pub device: u64,
    /// What `limit` and `actual` are measured in.
    pub unit: Unit,
    /// The most that is allowed.
    pub limit: Amount,
    /// What there is; `None` when the file cannot tell, which does not pass.
    pub actual: Option<Amount>,
    /// Where `actual` is not known, or known in part: the code of what the file lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<warning::Code>,
    /// Whether the limit holds.
    pub passed: bool,
    /// One sentence with the numbers.
    pub message: String,
    /// The lines of the user's code that contribute most, where it has not passed and stacks were
    /// recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<CodeLine>,
}

/// A line of the user's code and what it contributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CodeLine {
    /// Where.
    #[serde(flatten)]
    pub frame: FrameReport,
    /// The file's path in the repository, if it is there.
    pub source: Option<String>,
    /// How much it contributes.
    pub bytes: u64,
    /// What these bytes are, in a phrase.
    pub what: &'static str,
}

/// The code of why a figure is not known, for scripts to go by.
pub(super) fn code_of(why: &UnknownReason) -> warning::Code {
    match why {
        UnknownReason::NoHistory => warning::Code::NoTrace,
        UnknownReason::HistoryLost { .. } => warning::Code::HistoryLost,
        UnknownReason::Contradictory { .. } => warning::Code::TraceInconsistent,
        UnknownReason::Diverges { .. } => warning::Code::ModelParted,
        UnknownReason::NotInBaseline { .. } | UnknownReason::BaselineIsZero => {
            warning::Code::NotInBaseline
        }
        UnknownReason::MissingSnapshot { .. } => warning::Code::NotChecked,
    }
}

impl Finding {
    /// Limit and actual figure, with as many digits as tell them apart.
    pub fn told(&self) -> (String, String) {
        told_apart(self.limit, self.actual)
    }

    /// How bad it is, to compare findings of one code by: how many times its limit the figure is, then
    /// the figure itself, as where the limit is 0; the unknown is worst.
    pub fn excess(&self) -> (f64, f64) {
        let Some(actual) = self.actual else { return (f64::INFINITY, f64::INFINITY) };
        let times = actual.as_f64() / self.limit.as_f64();
        (if times.is_nan() { 0.0 } else { times }, actual.as_f64())
    }
}

/// Of a percentage: beyond these two ratios are the same.
const MOST_DECIMALS: usize = 14;

/// See [`Finding::told`].
pub(super) fn told_apart(limit: Amount, actual: Option<Amount>) -> (String, String) {
    let Some(actual) = actual else { return (limit.to_string(), "unknown".to_owned()) };
    if limit.to_string() == actual.to_string()
        && limit.partial_cmp(&actual).is_none_or(Ordering::is_ne)
    {
        let told = |decimals| (limit.format_exactly(decimals), actual.format_exactly(decimals));
        return (2..MOST_DECIMALS)
            .map(told)
            .find(|(limit, actual)| limit != actual)
            .unwrap_or_else(|| told(MOST_DECIMALS));
    }
    (limit.to_string(), actual.to_string())
}

/// Whether `actual` keeps to `limit`.
pub(super) fn holds(limit: Amount, actual: Option<Amount>) -> bool {
    actual.is_some_and(|actual| actual <= limit)
}

/// Something odd about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Noted {
    /// The snapshot, as given.
    pub path: String,
    /// What it is about.
    pub code: warning::Code,
    /// A sentence.
    pub message: String,
}

impl Noted {
    /// About the file at `path`.
    pub(super) fn new(path: &str, code: warning::Code, message: &str) -> Self {
        Self { path: path.to_owned(), code, message: message.to_owned() }
    }
}
