//! The page of `oomscope analyze`: the first screen, and below it failures, memory use, and the lines that hold the
//! memory.

use itertools::Itertools as _;

use super::breakdown::{annotated, breakdown, kept_by_variable, live_by_line};
use super::failure::{failed_request, tried_request};
use super::memory::{memory, pools_and_streams, segments};
use super::phrases::describe_file;
use super::screen::{rank_table, screen, screen_of_ranks};
use crate::analysis::{AnalyzeReport, DeviceReport, DryRunVerdict, SnapshotReport};
use crate::base::units::{counted, size};
use crate::output::document::{Document, Text, alarm, code, strong};
use crate::output::wording::describe_verdict;

/// Lays out one snapshot, or the table of ranks and the worst of them.
pub fn analyze(report: &AnalyzeReport) -> Document {
    let mut document = Document::default();
    let Some((shown, device)) = report.shown() else { return document }; // a report has a snapshot
    if let Some((job, dry_run)) = report.dry_run.as_ref().zip(shown.dry_run.as_ref()) {
        let verdict = describe_verdict(report, job, dry_run);
        let is_failure = job.verdict == DryRunVerdict::WouldNotFit;
        document.headline(if is_failure { alarm(verdict) } else { strong(verdict) }, "");
    }
    match (&report.ranks, device) {
        (Some(ranks), Some(device)) if report.snapshots.len() > 1 => {
            screen_of_ranks(&mut document, report, ranks, (shown, device));
        }
        (ranks, Some(device)) => {
            screen(&mut document, shown, device, report.top);
            if let Some(ranks) = ranks {
                document.table(rank_table(ranks, report.top.min(MAX_DEVICES)));
                document.field("peaks", &*ranks.peaks);
            }
        }
        (_, None) => document.headline(&*report.summary().answer, ""),
    }
    let unreadable = report.unreadable.iter().map(|file| code(&*file.path).and(format!(": {}", file.message)));
    document.list_under("Not read", unreadable);
    let mut sections = Document::default();
    add_sections(&mut sections, shown, report);
    document.with_sections(sections)
}

/// Lays out the first screen of `device` of `snapshot`: of failed request `failure` of its report, or of its last one.
pub fn result(snapshot: &SnapshotReport, device: &DeviceReport, failure: Option<usize>, rows: usize) -> Document {
    let mut document = Document::default();
    let at_failure = failure.map(|index| device.at_failure(index));
    screen(&mut document, snapshot, at_failure.as_ref().unwrap_or(device), rows);
    document
}

/// Devices of one snapshot on the first screen, at most.
const MAX_DEVICES: usize = 8;

/// The page on the snapshots that a finished command left in `directory`.
pub fn after_run(report: &AnalyzeReport, directory: &str) -> Document {
    let mut document = analyze(report);
    let snapshots = counted(report.snapshots.len() as u64, "snapshot");
    document.field("saved", Text::from(format!("{snapshots} in ")).and(code(directory)));
    document
}

/// Appends everything about `snapshot`.
fn add_sections(document: &mut Document, snapshot: &SnapshotReport, report: &AnalyzeReport) {
    document.heading(code(&*snapshot.path));
    document.paragraph(describe_file(snapshot));
    // Worst first, as in the table.
    let rows = report.ranks.iter().flat_map(|ranks| &ranks.rows);
    let order: Vec<u64> = rows.filter(|row| row.path == snapshot.path).map(|row| row.device).collect();
    for device in snapshot.devices.iter().sorted_by_key(|device| order.iter().position(|id| *id == device.device)) {
        failed_request(document, device);
        tried_request(document, device);
        memory(document, device);
        breakdown(document, device);
        kept_by_variable(document, device);
        annotated(document, device);
        live_by_line(document, device);
        segments(document, device);
        pools_and_streams(document, &device.memory);
    }
    if let Some(host) = &snapshot.host {
        document.heading("Pinned host memory");
        document.paragraph(format!("{} in {}", size(host.bytes), counted(host.count, "segment")));
    }
    document.list_under("Notes", snapshot.warnings.iter().map(|note| format!("{}: {}", note.code, note.message)));
}
