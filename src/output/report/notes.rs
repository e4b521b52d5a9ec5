//! The warnings that change how an answer is to be read.

use crate::base::units::counted;
use crate::base::warning::{Code, Warning};
use crate::output::document::{Document, code};
use crate::output::wording::Summary;

/// Warnings on the first screen, at most.
const MAX_NOTES: usize = 2;

/// Appends them, and the number of the others.
pub(super) fn add_notes(document: &mut Document, warnings: &[Warning]) {
    let (shown, others) = shown_and_others(warnings);
    for warning in &shown {
        document.warning(warning.code.word(), &*warning.message);
    }
    if !shown.is_empty() && !others.is_empty() {
        document.warning(Document::MORE, format!("{}: --full", counted(others.len() as u64, "more note")));
    }
}

/// `document` with the warnings that [`add_notes`] only counts.
pub(super) fn with_other_notes(mut document: Document, warnings: &[Warning]) -> Document {
    for warning in shown_and_others(warnings).1 {
        document.warning(warning.code.word(), &*warning.message);
    }
    document
}

/// The warnings for the first screen, and the others.
fn shown_and_others(warnings: &[Warning]) -> (Vec<&Warning>, Vec<&Warning>) {
    let (mut shown, mut others): (Vec<_>, Vec<_>) = warnings.iter().partition(|warning| changes_answer(warning.code));
    others.splice(0..0, shown.split_off(shown.len().min(MAX_NOTES)));
    (shown, others)
}

/// Whether the figures mean something else than they seem to.
pub(super) fn changes_answer(code: Code) -> bool {
    matches!(
        code,
        Code::EmptyWindow
            | Code::FarAway
            | Code::ForeignBackend
            | Code::GuessedGrowth
            | Code::HarmfulSettings
            | Code::IdleSetting
            | Code::ModelParted
            | Code::NoMoment
            | Code::NoPeak
            | Code::NotAllocated
            | Code::PredictionOff
            | Code::ReleaseUnclear
            | Code::SmallCapacity
            | Code::StartsLater
            | Code::TraceInconsistent
            | Code::TrailingBytes
            | Code::UnknownMemory
            | Code::UnlikeRecordings
            | Code::Unpaired
            | Code::ValuesRead
            | Code::VaryingShapes
    )
}

/// The action, and the command or the text to copy for it: the last lines of a first screen.
pub(super) fn add_action(document: &mut Document, summary: &Summary) {
    document.fields("do", summary.action.as_deref());
    add_copy(document, summary.copy.as_deref());
}

/// A command to paste next, or another text to copy.
pub(super) fn add_copy(document: &mut Document, copy: Option<&str>) {
    let name = if copy.is_some_and(|copy| copy.starts_with("oomscope ")) { "next" } else { "copy" };
    document.fields(name, copy.map(code));
}
