//! What a gate lets pass though a file does not tell it: the user says so.

use crate::base::warning::Code;
use crate::study::figures::Figure;

/// Why a figure may be missing.
const REASONS: [Code; 6] = [
    Code::HistoryLost,
    Code::ModelParted,
    Code::NoTrace,
    Code::NotChecked,
    Code::NotInBaseline,
    Code::TraceInconsistent,
];

/// The words of figures that may be unknown, and of reasons for which any may.
#[derive(Debug, Clone, Default)]
pub struct AllowMissing(Vec<String>);

impl AllowMissing {
    /// Of these words, each of which is one of [`AllowMissing::words`].
    pub fn new(words: &[String]) -> Self {
        Self(words.to_vec())
    }

    /// The words there are: figures with a limit, and reasons.
    pub fn words() -> impl Iterator<Item = &'static str> {
        let figures = Figure::ALL.iter().filter(|figure| figure.limit().is_some());
        figures.map(|figure| figure.word()).chain(REASONS.iter().map(|code| code.word()))
    }

    /// Whether `figure` may be unknown because of `code`.
    pub(super) fn allows(&self, figure: Figure, code: Code) -> bool {
        self.0.iter().any(|word| word == code.word() || word == figure.word())
    }
}
