//! The pages of `oomscope dry-run --try` and `--fit`, and of `--confirm`.

use super::summary::summary;
use crate::analysis::{SizeSearchReport, TrialsReport};
use crate::base::units::{count, size};
use crate::output::document::{Cell, Document, Table, code};

/// Lays out runs with remedies.
pub fn trials(report: &TrialsReport) -> Document {
    let mut document = Document::default();
    document.title("Dry runs with remedies");
    summary(&mut document, &report.summary());
    add_trials(&mut document, report);
    document
}

/// Adds the table of runs with remedies to a page.
pub fn add_trials(document: &mut Document, report: &TrialsReport) {
    let rows = report.runs.iter().map(|run| {
        let remedy = run.remedy.clone().unwrap_or_else(|| "unchanged".to_owned());
        let headroom = run.headroom_bytes.map(size).unwrap_or_default();
        vec![Cell::from(remedy), Cell::from(run.describe_outcome()), Cell::from(headroom)]
    });
    document.heading(format!("Dry runs on {}", report.gpu));
    document.table(Table::new(&["run", "result", "headroom"], &[0, 1], rows));
}

/// Lays out runs at several sizes.
pub fn size_search(report: &SizeSearchReport) -> Document {
    let mut document = Document::default();
    document.title(code(&*report.name));
    summary(&mut document, &report.summary());
    document.field("dry runs", report.describe_runs());
    let rows = report.runs.iter().map(|run| {
        let reserved = if run.fits { size(run.reserved_bytes) } else { String::new() };
        vec![Cell::from(count(run.size)), Cell::from(reserved), Cell::from(run.describe())]
    });
    document.table(Table::new(&["size", "reserved", "result"], &[2], rows));
    document
}
