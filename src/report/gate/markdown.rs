//! The verdict as Markdown, for a step summary or a pull request.

use std::fmt::Write as _;

use super::super::markdown::{code, text};
use super::words::{lost, notes, outcome, place, share, verdict};
use crate::gate::{CheckReport, Finding};

/// GitHub-flavoured Markdown.
pub fn check_markdown(report: &CheckReport) -> String {
    let mut out = format!("## GPU memory: {}\n", text(&verdict(report)));
    if let Some(worst) = &report.worst {
        let _ = writeln!(out, "\nWorst: device {} of {}", worst.device, code(&worst.path));
    }
    if !report.findings.is_empty() {
        out.push_str("\n| | limit on | actual | at most | device | snapshot |\n");
        out.push_str("| --- | --- | ---: | ---: | ---: | --- |\n");
        for finding in &report.findings {
            out.push_str(&row(finding));
        }
    }
    for finding in lost(report) {
        let title = format!("**{}**, device {} of", finding.code.word(), finding.device);
        let _ = writeln!(out, "\n{title} {}: {}", code(&finding.path), text(&finding.message));
        for (index, line) in finding.lines.iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            let _ = writeln!(out, "{gap}- {}: {}", code(&place(line)), share(line));
        }
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

fn row(finding: &Finding) -> String {
    let (limit, actual) = finding.told();
    let (word, path) = (finding.code.word(), code(&finding.path));
    let outcome = if finding.passed {
        outcome(finding).to_owned()
    } else {
        format!("**{}**", outcome(finding))
    };
    format!(
        "| {outcome} | {word} | {} | {} | {} | {path} |\n",
        text(&actual),
        text(&limit),
        finding.device
    )
}
