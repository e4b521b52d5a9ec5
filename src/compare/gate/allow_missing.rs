//! `--allow-missing`: figures that a check accepts as unknown.

use crate::base::warning::Code;
use crate::study::figures::Figure;

/// The reasons why a figure may be unknown.
const REASONS: [Code; 7] = [
    Code::HistoryLost,
    Code::ModelParted,
    Code::NoTrace,
    Code::NotChecked,
    Code::NotInBaseline,
    Code::TraceInconsistent,
    Code::Truncated,
];

/// The accepted figures and reasons, by word.
#[derive(Debug, Clone, Default)]
pub struct AllowMissing(Vec<String>);

impl AllowMissing {
    /// `words` must be among [`Self::words`].
    pub fn new(words: &[String]) -> Self {
        Self(words.to_vec())
    }

    /// All valid words: figures with a limit, and reasons.
    pub fn words() -> impl Iterator<Item = &'static str> {
        let figures = Figure::ALL.iter().filter(|figure| figure.limit().is_some());
        figures.map(|figure| figure.word()).chain(REASONS.iter().map(|code| code.word()))
    }

    /// Whether a recording that starts late is taken as whole, and its figures are compared.
    pub(super) fn accepts_late_start(&self) -> bool {
        self.0.iter().any(|word| word == Code::Truncated.word())
    }

    /// Whether `figure` may be unknown because of `code`.
    pub(super) fn allows(&self, figure: Figure, code: Code) -> bool {
        self.0.iter().any(|word| word == code.word() || word == figure.word())
    }
}
