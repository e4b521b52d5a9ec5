//! The warnings of a report: the first ones on the first screen, the others below it.

use crate::base::units::counted;
use crate::base::warning::Warning;
use crate::output::document::Document;

/// Warnings on the first screen, at most.
const MAX_NOTES: usize = 2;

/// Appends the first of `warnings`, and the number of the others.
pub(super) fn add_notes(document: &mut Document, warnings: &[Warning]) {
    let (shown, others) = warnings.split_at(MAX_NOTES.min(warnings.len()));
    for warning in shown {
        document.warning(warning.code.word(), &*warning.message);
    }
    if !others.is_empty() {
        document.warning("more", format!("{}: --full", counted(others.len() as u64, "more note")));
    }
}

/// Appends those that [`add_notes`] only counts.
pub(super) fn add_further_notes(sections: &mut Document, warnings: &[Warning]) {
    let others = warnings.iter().skip(MAX_NOTES);
    sections.list_under("Notes", others.map(|note| format!("{}: {}", note.code, note.message)));
}
