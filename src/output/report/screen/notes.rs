//! The warnings that change how an answer is to be read.

use crate::analysis::{DryRunReason, SnapshotReport};
use crate::base::units::counted;
use crate::base::warning::Code;
use crate::output::document::Document;

/// Warnings on the first screen, at most.
const MAX_NOTES: usize = 2;

/// Appends them, and the number of the others.
pub(super) fn add_notes(document: &mut Document, snapshot: &SnapshotReport) {
    let (first, others): (Vec<_>, Vec<_>) = snapshot.warnings.iter().partition(|warning| changes_answer(warning.code, snapshot));
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
fn changes_answer(code: Code, snapshot: &SnapshotReport) -> bool {
    match code {
        Code::ForeignBackend
        | Code::ModelParted
        | Code::NoMoment
        | Code::NotAllocated
        | Code::TraceInconsistent
        | Code::UnknownMemory => true,
        // A single value that decides is the reason of the verdict.
        Code::ValuesRead => snapshot.dry_run.as_ref().is_some_and(|run| {
            let deciding = run.reads.iter().filter(|read| read.is_deciding()).count();
            deciding > usize::from(matches!(run.reason, DryRunReason::Value(_))) || run.omitted_reads > 0
        }),
        _ => false,
    }
}
