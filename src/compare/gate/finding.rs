//! The result of checking one figure against one limit; and `--allow-missing`: figures and verdicts that a check accepts as
//! unknown, and objections that it sets aside.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::analysis::DryRunVerdict;
use crate::base::warning::{self, Code, words};
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
        let mut decimals = 2..MAX_DECIMALS;
        let enough = decimals.find(|decimals| limit.format_exactly(*decimals) != actual.format_exactly(*decimals));
        let enough = enough.unwrap_or(MAX_DECIMALS);
        return (limit.format_exactly(enough), actual.format_exactly(enough));
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

/// The reasons why a figure may be unknown.
const REASONS: [Code; 7] = [
    Code::HistoryLost,
    Code::NoTrace,
    Code::NotChecked,
    Code::NotInBaseline,
    Code::TraceInconsistent,
    Code::Truncated,
    Code::UnknownAction,
];

/// The verdicts of a dry run that are no certain answer.
const VERDICTS: [DryRunVerdict; 3] = [DryRunVerdict::MayFit, DryRunVerdict::DidNotFinish, DryRunVerdict::NoVerdict];

/// The words of figures that may be unknown, of reasons why every figure may be, and of verdicts and objections with which a
/// check may pass, among [`words_to_allow`].
pub type AllowMissing = BTreeSet<String>;

/// All valid words: figures with a limit, reasons, verdicts and objections.
pub fn words_to_allow() -> impl Iterator<Item = &'static str> {
    let figures = Figure::ALL.iter().filter(|figure| figure.limit().is_some());
    let verdicts = VERDICTS.iter().map(|verdict| verdict.word());
    let reasons = REASONS.iter().map(|code| code.word());
    let objections = ObjectionCode::ALL.iter().map(|code| code.word());
    figures.map(|figure| figure.word()).chain(reasons).chain(verdicts).chain(objections)
}

words! {
    /// A reason why a check cannot pass.
    pub enum ObjectionCode {
        /// The baseline is of another GPU
        OtherGpu = "other-gpu",
        /// No line of code that holds memory in the baseline holds any now
        OtherProgram = "other-program",
        /// The baseline is of another release of PyTorch
        OtherRelease = "other-release",
        /// Two snapshots have the same name in the baseline
        RepeatedRank = "repeated-rank",
    }
}

/// A reason why a check cannot pass although every limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Objection {
    /// The kind.
    pub code: ObjectionCode,
    /// The value in the baseline; of a repeated rank, the path of its first snapshot.
    pub before: String,
    /// The value now; of a repeated rank, the path of its second snapshot.
    pub after: String,
    /// Whether `--allow-missing` accepts it.
    pub allowed: bool,
}
