//! The page of `oomscope check`.

use super::super::summary::holder_and_action;
use super::phrases::{
    LimitKind, MAX_FINDINGS, bytes_label, limits_by_kind, location_label, outcome_label, warnings_by_code,
};
use crate::base::units::{count, counted};
use crate::compare::gate::{BaselineComparison, CheckReport, FileWarning, Finding, Severity, WorstDevice};
use crate::output::document::{Cell, Document, Item, Table, Text, alarm, code, strong};

/// Lays out `report`.
pub fn check(report: &CheckReport) -> Document {
    let mut document = Document::default();
    let summary = report.summary();
    let answer = &*summary.answer;
    document.title(if report.passed { answer.into() } else { alarm(answer) });
    holder_and_action(&mut document, &summary);
    if let Some(config) = &report.config {
        let limits = Text::from("limits from ").and(code(&**config));
        document.paragraph(limits.and(", unless a flag overrides them"));
    }
    if let Some(worst) = &report.worst {
        document.paragraph(worst_device(worst));
    }
    let kinds = limits_by_kind(report);
    if !kinds.is_empty() {
        document.table(limit_table(&kinds));
    }
    if let Some(baseline) = &report.baseline {
        changes(&mut document, baseline);
    }
    let lost = report.failed_findings();
    let shown = &lost[..lost.len().min(MAX_FINDINGS)];
    // The changes since an entry of the baseline explain its limits better.
    let has_changes = report.baseline.as_ref().is_some_and(|baseline| !baseline.text.is_empty());
    let is_explained = |finding: &&&Finding| has_changes && finding.code.needs_baseline() && finding.actual.is_some();
    let described: Vec<&Finding> = shown.iter().filter(|finding| !is_explained(finding)).copied().collect();
    for group in described.chunk_by(|a, b| has_same_message(a, b)) {
        findings(&mut document, group);
    }
    let more = lost.len().checked_sub(MAX_FINDINGS).filter(|more| *more > 0).map(|more| {
        let more = count(more as u64);
        format!("{more} more do not hold: --format json lists all of them").into()
    });
    let is_shown = |noted: &FileWarning| {
        let why = noted.message.split_once(": ").map_or(&*noted.message, |(_, why)| why);
        shown.iter().any(|finding| finding.path == noted.path && finding.message.ends_with(why))
    };
    let notes = warnings_by_code(report).into_iter().filter(|(noted, others)| !others.is_empty() || !is_shown(noted));
    let notes = notes.map(|(noted, others)| {
        let note = format!(": {}{others} [{}]", noted.message, noted.code);
        code(&*noted.path).and(note)
    });
    let unreadable = report
        .not_checked()
        .into_iter()
        .map(|(path, message)| Text::from("not checked: ").and(code(path)).and(format!(": {message}")));
    document.list_under("Notes", more.into_iter().chain(notes).chain(unreadable));
    document
}

/// The changes since the baseline.
fn changes(document: &mut Document, baseline: &BaselineComparison) {
    let title = Text::from("changes since ").and(code(&*baseline.path)).and(", ").and(code(&*baseline.entry));
    if !baseline.text.is_empty() {
        document.subheading(title);
        document.list(baseline.text.iter().map(|line| Item::from(Text::from(&**line))));
    }
}

/// Names the worst of several devices.
fn worst_device(worst: &WorstDevice) -> Text {
    let mut lost = Vec::new();
    if worst.failed > 0 {
        let verb = if worst.failed == 1 { "does" } else { "do" };
        lost.push(format!("{} {verb} not hold", counted(worst.failed as u64, "limit")));
    }
    if worst.warned > 0 {
        lost.push(counted(worst.warned as u64, "warning"));
    }
    let device = Text::from(format!("worst: device {} of ", worst.device));
    device.and(code(&*worst.path)).and(format!(": {}", lost.join(", ")))
}

/// One row per limit; with several devices, that of the worst device.
fn limit_table(kinds: &[LimitKind<'_>]) -> Table {
    let are_several = kinds.iter().any(|kind| kind.all > 1);
    let header: &[&str] = if are_several {
        &["", "", "worst", "limit", "not held in", "device", "worst in"]
    } else {
        &["", "", "actual", "limit"]
    };
    Table::new(header, &[0, 1, 6], kinds.iter().map(|kind| row(kind, are_several)))
}

fn row(kind: &LimitKind<'_>, are_several: bool) -> Vec<Cell> {
    let worst = kind.worst;
    let (limit, actual) = worst.format_figures();
    let outcome = if worst.passed { outcome_label(worst).into() } else { with_severity(worst, outcome_label(worst)) };
    let mut row = vec![outcome.into(), worst.code.word().into(), actual.into(), limit.into()];
    if are_several {
        row.push(format!("{} of {}", count(kind.failing), count(kind.all)).into());
        row.push(worst.device.to_string().into());
        row.push(code(&*worst.path).into());
    }
    row
}

/// Whether one message covers both findings: they are missing for the same reason.
fn has_same_message(a: &Finding, b: &Finding) -> bool {
    let of = |finding: &Finding| (finding.device, finding.severity, finding.missing);
    of(a) == of(b) && a.path == b.path && a.message == b.message
}

/// Findings of one device with the same message.
fn findings(document: &mut Document, group: &[&Finding]) {
    let Some(finding) = group.first() else { return }; // a group has at least one
    let codes: Vec<&str> = group.iter().map(|finding| finding.code.word()).collect();
    let title = with_severity(finding, &format!("{} {}", outcome_label(finding), codes.join(", ")));
    let device = format!(", device {} of ", finding.device);
    document.subheading(title.and(device).and(code(&*finding.path)));
    document.paragraph(&*finding.message);
    document.list(
        finding
            .lines
            .iter()
            .map(|line| Item::from(strong(location_label(line)).and(format!(": {}", bytes_label(line))))),
    );
}

fn with_severity(finding: &Finding, text: &str) -> Text {
    if finding.severity == Severity::Fail { alarm(text) } else { strong(text) }
}
