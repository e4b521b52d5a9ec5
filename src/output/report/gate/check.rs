//! The answer of `oomscope check`, for people.

use super::super::summary::what_to_do;
use super::words::{LimitKind, SHOWN, kinds, notes, outcome, place, share};
use crate::base::units::{count, counted};
use crate::compare::gate::{CheckReport, Finding, Noted, Severity, Worst};
use crate::output::document::{Cell, Document, Item, Table, Text, alarm, code, strong};

/// The answer as a document.
pub fn check(report: &CheckReport) -> Document {
    let mut document = Document::default();
    let answer = &*report.summary.answer;
    document.title(if report.passed { answer.into() } else { alarm(answer) });
    what_to_do(&mut document, &report.summary);
    if let Some(config) = &report.config {
        let limits = Text::from("limits of ").and(code(&**config));
        document.paragraph(limits.and(", where no flag says otherwise"));
    }
    if let Some(worst) = &report.worst {
        document.paragraph(worst_of_all(worst));
    }
    let kinds = kinds(report);
    if !kinds.is_empty() {
        document.table(limits(&kinds));
    }
    let lost = report.lost();
    let shown = &lost[..lost.len().min(SHOWN)];
    for alike in shown.chunk_by(|a, b| says_the_same(a, b)) {
        findings(&mut document, alike);
    }
    let more = lost.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| {
        let more = count(more as u64);
        format!("{more} more do not hold: --format json lists all of them").into()
    });
    let is_said = |noted: &Noted| {
        let why = noted.message.split_once(": ").map_or(&*noted.message, |(_, why)| why);
        shown.iter().any(|finding| finding.path == noted.path && finding.message.ends_with(why))
    };
    let notes =
        notes(report).into_iter().filter(|(noted, others)| !others.is_empty() || !is_said(noted));
    let notes = notes.map(|(noted, others)| {
        let said = format!(": {}{others} [{}]", noted.message, noted.code);
        code(&*noted.path).and(said)
    });
    let unreadable = report.not_checked().into_iter().map(|(path, message)| {
        Text::from("not checked: ").and(code(path)).and(format!(": {message}"))
    });
    document.list_under("Notes", more.into_iter().chain(notes).chain(unreadable));
    document
}

/// Which of several stands worst.
fn worst_of_all(worst: &Worst) -> Text {
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

/// A row a limit; of several devices, that of the one that stands worst.
fn limits(kinds: &[LimitKind<'_>]) -> Table {
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
    let (limit, actual) = worst.told();
    let outcome = if worst.passed { outcome(worst).into() } else { toned(worst, outcome(worst)) };
    let mut row = vec![outcome.into(), worst.code.word().into(), actual.into(), limit.into()];
    if are_several {
        row.push(format!("{} of {}", count(kind.lost), count(kind.all)).into());
        row.push(worst.device.to_string().into());
        row.push(code(&*worst.path).into());
    }
    row
}

/// Whether one sentence is said of both: why they are not known.
fn says_the_same(a: &Finding, b: &Finding) -> bool {
    let of = |finding: &Finding| (finding.device, finding.severity, finding.missing);
    of(a) == of(b) && a.path == b.path && a.message == b.message
}

/// Findings of one device that say the same.
fn findings(document: &mut Document, alike: &[&Finding]) {
    let Some(finding) = alike.first() else { return };
    let codes: Vec<&str> = alike.iter().map(|finding| finding.code.word()).collect();
    let title = toned(finding, &format!("{} {}", outcome(finding), codes.join(", ")));
    let device = format!(", device {} of ", finding.device);
    document.subheading(title.and(device).and(code(&*finding.path)));
    document.paragraph(&*finding.message);
    document.list(finding.lines.iter().map(|line| {
        Item::from(
            strong(crate::output::document::place(place(line))).and(format!(": {}", share(line))),
        )
    }));
}

fn toned(finding: &Finding, text: &str) -> Text {
    if finding.severity == Severity::Fail { alarm(text) } else { strong(text) }
}
