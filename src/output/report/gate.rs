//! The page of `oomscope check`: one row a limit, those that do not hold first.

use itertools::Itertools as _;

use super::phrases::{Names, and_others};
use crate::analysis::group;
use crate::base::units::{count, counted, escape_text, size};
use crate::compare::gate::{BaselineComparison, CheckReport, CodeLine, FileWarning, Finding, Severity};
use crate::output::document::{Cell, Document, Judgement, Table, Text, alarm, code, faint, source_location, strong};
use crate::output::wording::command_line;
use crate::stacks::frames::FrameReport;

/// Changes since a baseline on the first screen, and files that could not be checked, at most.
const MAX_CHANGES: usize = 8;
const MAX_FILES: usize = 3;
/// Limits described below the first screen, at most.
const MAX_FINDINGS: usize = 10;

/// Lays out `report`.
pub fn check(report: &CheckReport) -> Document {
    let verdict = report.verdict();
    let verdict = if report.passed { strong(verdict) } else { alarm(verdict) };
    let mut document = Document::with_headline(verdict, context(report));
    let kinds = limits_by_kind(report).into_iter();
    let kinds = kinds.sorted_by_key(|kind| (kind.worst.passed, kind.worst.severity)).collect_vec();
    if !kinds.is_empty() {
        document.table(limit_table(&kinds));
    }
    // The changes since an entry of the baseline explain its limits better.
    match report.baseline.as_ref().filter(|baseline| !baseline.text.is_empty()) {
        Some(baseline) => changes(&mut document, baseline),
        None => document.fields("why", why(report)),
    }
    let not_checked = report.not_checked();
    let files = not_checked.iter().map(|(path, message)| code(&**path).and(format!(": {message}")));
    let others = and_others(not_checked.len(), MAX_FILES, "other");
    let others = others.map(|others| format!("{others}: --format json").into());
    document.fields("not checked", files.take(MAX_FILES).chain(others));
    if !report.passed {
        document.fields("do", report.summary().action);
        let worst = report.failed_findings().into_iter().find(|finding| finding.severity == Severity::Fail);
        let next = worst.and_then(|worst| command_line("analyze", &worst.path));
        document.fields("next", next.map(code));
    }
    document.with_sections(sections(report))
}

/// The GPU and the file, if there is only one; the configuration.
fn context(report: &CheckReport) -> Text {
    let one = report.findings.iter().map(|finding| (&finding.path, finding.device)).all_equal_value();
    let device = one.ok().map(|(_, device)| format!("GPU {device}"));
    let config = report.config.as_ref().map(|config| format!("limits from {config}"));
    faint(device.into_iter().chain(config).join(", "))
}

/// Why the job of a dry run does not pass, or why the worst figure is not known.
fn why(report: &CheckReport) -> Option<String> {
    let job = report.dry_run.as_ref().filter(|job| !job.passed).map(|job| job.reason.clone());
    let unknown = || {
        let failed = report.failed_findings();
        Some(failed.into_iter().find(|finding| finding.actual.is_none() && finding.lines.is_empty())?.message.clone())
    };
    job.or_else(unknown)
}

/// One row per limit, and below one that does not hold the line that holds most; with several devices, of the worst.
fn limit_table(kinds: &[LimitKind<'_>]) -> impl Into<Table> {
    let are_several = kinds.iter().any(|kind| kind.all > 1);
    let names = Names::from_paths(kinds.iter().map(|kind| &*kind.worst.path));
    let rows = kinds.iter().flat_map(|kind| {
        let below = Some(below(kind.worst, are_several.then_some(&names))).filter(|below| !below.is_empty());
        [(Some(kind), marked_name(kind))].into_iter().chain(below.map(|below| (None, Cell::indented(1, below))))
    });
    // The line below a limit has no figures.
    let of_limit = |show: fn(&LimitKind<'_>) -> String| {
        move |(kind, _): &(Option<&LimitKind<'_>>, Cell)| kind.map_or_else(String::new, show)
    };
    Table::from_rows(rows)
        .text("limit", |(_, name)| name.clone())
        .number(if are_several { "worst" } else { "actual" }, of_limit(|kind| kind.worst.format_figures().1))
        .number("limit", of_limit(|kind| kind.worst.format_figures().0))
        .number("not held on", of_limit(|kind| format!("{} of {}", count(kind.failing), count(kind.all))))
        .only_if(are_several)
        .wide()
}

/// The text below a limit that does not hold: the worst of several devices, and the line that holds most.
fn below(worst: &Finding, names: Option<&Names>) -> Text {
    if worst.passed {
        return Text::default();
    }
    let device = names.map(|names| code(format!("{} GPU {}", names.shorten(&worst.path), worst.device)));
    match (device, worst.lines.first().map(line_label)) {
        (Some(device), Some(line)) => device.and(": ").and(line),
        (device, line) => device.or(line).unwrap_or_default(),
    }
}

fn marked_name(kind: &LimitKind<'_>) -> Cell {
    let worst = kind.worst;
    let (mark, effect) = match (worst.passed, worst.severity) {
        (true, _) if worst.actual.is_none() => (Judgement::Perhaps, "  allowed"),
        (true, _) => (Judgement::Good, ""),
        (false, Severity::Warn) => (Judgement::Perhaps, "  warns"),
        (false, Severity::Fail) => (Judgement::Bad, ""),
    };
    Cell::marked(mark, Text::from(worst.code.word()).and(faint(effect)))
}

/// `app/train.py:12 step  1.11 GiB held at the peak`
fn line_label(line: &CodeLine) -> Text {
    let place = source_location(line.file(), &format!(":{} {}", line.frame.line, line.frame.name));
    place.and(format!("  {} {}", size(line.bytes), line.what))
}

/// The changes since the baseline.
fn changes(document: &mut Document, baseline: &BaselineComparison) {
    document.subheading(Text::from("changes since ").and(code(&*baseline.path)).and(", ").and(code(&*baseline.entry)));
    let others = and_others(baseline.text.len(), MAX_CHANGES, "other");
    document.list(baseline.text.iter().take(MAX_CHANGES).cloned().chain(others));
}

/// Each limit that does not hold with its lines, and the notes on the files.
fn sections(report: &CheckReport) -> Document {
    let mut document = Document::default();
    let lost = report.failed_findings();
    for finding in lost.iter().take(MAX_FINDINGS) {
        let title = format!("{} of GPU {} of ", finding.code.word(), finding.device);
        document.subheading(Text::from(title).and(code(&*finding.path)));
        document.paragraph(&*finding.message);
        // The first line is in the table.
        document.list(finding.lines.iter().skip(1).map(line_label));
    }
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_FINDINGS) {
        document.paragraph(format!("{} more do not hold: --format json", count(more as u64)));
    }
    let notes = warnings_by_code(report).into_iter();
    let notes =
        notes.map(|(noted, others)| code(&*noted.path).and(format!(": {}{others} [{}]", noted.message, noted.code)));
    document.list_under("Notes", notes);
    document
}

/// `train.py:12 in step`, with the path in the repository if known.
fn location_label(line: &CodeLine) -> String {
    let file = escape_text(line.file());
    format!("{} in {}", FrameReport { file, ..line.frame.clone() }.file_line(), line.frame.name)
}

/// `20 MiB held at the snapshot`
pub(crate) fn bytes_label(line: &CodeLine) -> String {
    format!("{} {}", size(line.bytes), line.what)
}

/// As CI systems call it.
pub(crate) fn level(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Fail => "error",
        Severity::Warn => "warning",
    }
}

/// The lines of code of `finding`, one below the other.
pub(crate) fn finding_lines(finding: &Finding) -> String {
    let line = |line: &CodeLine| format!("\n{}: {}", location_label(line), bytes_label(line));
    finding.lines.iter().map(line).collect()
}

/// A limit over all devices.
struct LimitKind<'a> {
    worst: &'a Finding,
    /// Number of devices that exceed it.
    failing: u64,
    /// Number of devices that it applies to.
    all: u64,
}

/// Groups the findings by limit.
fn limits_by_kind(report: &CheckReport) -> Vec<LimitKind<'_>> {
    let groups = group(&report.findings, |a, b| (a.code, a.severity) == (b.code, b.severity));
    let kinds = groups.into_iter().filter_map(|findings| {
        let failing = findings.iter().filter(|finding| !finding.passed).count() as u64;
        let all = findings.len() as u64;
        let worst =
            findings.into_iter().reduce(|worst, other| if other.excess() > worst.excess() { other } else { worst });
        Some(LimitKind { worst: worst?, failing, all })
    });
    kinds.collect()
}

/// The first warning of each code, and a note on how many other files have it.
pub(crate) fn warnings_by_code(report: &CheckReport) -> Vec<(&FileWarning, String)> {
    let groups = group(&report.warnings, |a, b| a.code == b.code);
    let warnings = groups.iter().filter_map(|warnings| {
        let (first, others) = warnings.split_first()?;
        let note = (!others.is_empty()).then(|| format!(" (also in {})", counted(others.len() as u64, "other")));
        Some((*first, note.unwrap_or_default()))
    });
    warnings.collect()
}
