//! `--allow-missing`: figures and verdicts that a check accepts as unknown, and objections that it sets aside.

use serde::Serialize;

use crate::analysis::DryRunVerdict;
use crate::base::warning::{Code, words};
use crate::study::figures::Figure;

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

/// The accepted figures and reasons, by word.
#[derive(Debug, Clone, Default)]
pub struct AllowMissing(Vec<String>);

impl AllowMissing {
    /// `words` must be among [`Self::words`].
    pub fn new(words: &[String]) -> Self {
        Self(words.to_vec())
    }

    /// All valid words: figures with a limit, reasons, verdicts and objections.
    pub fn words() -> impl Iterator<Item = &'static str> {
        let figures = Figure::ALL.iter().filter(|figure| figure.limit().is_some());
        let verdicts = VERDICTS.iter().map(|verdict| verdict.word());
        let reasons = REASONS.iter().map(|code| code.word());
        let objections = ObjectionCode::ALL.iter().map(|code| code.word());
        figures.map(|figure| figure.word()).chain(reasons).chain(verdicts).chain(objections)
    }

    /// Whether `word` is among them: of a figure that may be unknown, of a reason why every figure may be, of a verdict
    /// or an objection with which a check may pass.
    pub fn allows(&self, word: &str) -> bool {
        self.0.iter().any(|allowed| allowed == word)
    }
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
