//! The verdict as Markdown, for a step summary or a pull request.

use std::fmt::Write as _;

use super::super::markdown::{code, text};
use super::words::{Kind, SHOWN, kinds, lost, notes, outcome, place, share, verdict};
use crate::gate::CheckReport;
use crate::units::count;

/// GitHub-flavoured Markdown.
pub fn check_markdown(report: &CheckReport) -> String {
    let mut out = format!("## GPU memory: {}\n", text(&verdict(report)));
    if let Some(worst) = &report.worst {
        let _ = writeln!(out, "\nWorst: device {} of {}", worst.device, code(&worst.path));
    }
    let kinds = kinds(report);
    if !kinds.is_empty() {
        out.push_str("\n| | limit on | worst | at most | not held in | worst in |\n");
        out.push_str("| --- | --- | ---: | ---: | ---: | --- |\n");
    }
    for kind in &kinds {
        out.push_str(&row(kind));
    }
    let lost = lost(report);
    for finding in lost.iter().take(SHOWN) {
        let title = format!("**{}**, device {} of", finding.code.word(), finding.device);
        let _ = writeln!(out, "\n{title} {}: {}", code(&finding.path), text(&finding.message));
        for (index, line) in finding.lines.iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{gap}- {}: {}", code(&place(line)), share(line));
        }
    }
    if let Some(more @ 1..) = lost.len().checked_sub(SHOWN) {
        let _ = writeln!(out, "\nand {} more", count(more as u64));
    }
    if !report.warnings.is_empty() || !report.unreadable.is_empty() {
        out.push('\n');
    }
    for (noted, others) in notes(report) {
        let said = text(&format!("{}{others}", noted.message));
        let _ = writeln!(out, "- note: {}: {said}", code(&noted.path));
    }
    for file in &report.unreadable {
        let _ = writeln!(out, "- not checked: {}: {}", code(&file.path), text(&file.message));
    }
    out
}

fn row(kind: &Kind<'_>) -> String {
    let finding = kind.worst;
    let (limit, actual) = finding.told();
    let outcome = if finding.passed {
        outcome(finding).to_owned()
    } else {
        format!("**{}**", outcome(finding))
    };
    let cells = [
        outcome,
        finding.code.word().to_owned(),
        text(&actual),
        text(&limit),
        format!("{} of {}", count(kind.lost), count(kind.all)),
        format!("{}, device {}", code(&finding.path), finding.device),
    ];
    format!("| {} |\n", cells.join(" | "))
}
