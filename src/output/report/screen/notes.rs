//! The warnings that change how an answer is to be read.

use crate::base::units::counted;
use crate::base::warning::{Code, Warning};
use crate::output::document::Document;

/// Warnings on the first screen, at most.
const MAX_NOTES: usize = 2;

/// Appends them, and the number of the others.
pub(in crate::output::report) fn add_notes(document: &mut Document, warnings: &[Warning]) {
    let (first, others): (Vec<_>, Vec<_>) = warnings.iter().partition(|warning| changes_answer(warning.code));
    let shown = &first[..first.len().min(MAX_NOTES)];
    for warning in shown {
        document.warning(warning.code.word(), &*warning.message);
    }
    let more = first.len() - shown.len() + others.len();
    if !shown.is_empty() && more > 0 {
        document.warning("more", format!("{}: --full", counted(more as u64, "more note")));
    }
}

/// Whether the figures mean something else than they seem to.
fn changes_answer(code: Code) -> bool {
    matches!(
        code,
        Code::DryRun
            | Code::ForeignBackend
            | Code::ModelParted
            | Code::NoMoment
            | Code::NotAllocated
            | Code::TraceInconsistent
            | Code::UnknownMemory
            | Code::ValuesRead
    )
}
