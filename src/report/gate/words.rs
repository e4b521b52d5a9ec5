//! Phrases that the formats share.

use std::cmp::Ordering;

use crate::gate::{CheckReport, Finding, Line, Noted, Severity};
use crate::units::{count, counted, plain, size};

/// The verdict in one sentence.
pub(super) fn verdict(report: &CheckReport) -> String {
    let all = report.findings.len() as u64;
    let failed = report.count(Severity::Fail) as u64;
    let warned = report.count(Severity::Warn) as u64;
    let mut said = match (failed, all) {
        (_, 0) => "no limit was checked".to_owned(),
        (0, 1) if warned == 0 => "the limit holds".to_owned(),
        (0, _) if warned == 0 => format!("all {} limits hold", count(all)),
        (0, _) => "no limit that fails is exceeded".to_owned(),
        (1, 1) => "the limit does not hold".to_owned(),
        (1, _) => format!("1 of {} limits does not hold", count(all)),
        _ => format!("{} of {} limits do not hold", count(failed), count(all)),
    };
    if warned > 0 {
        said = format!("{said}, {}", counted(warned, "warning"));
    }
    if !report.unreadable.is_empty() {
        let files = counted(report.unreadable.len() as u64, "file");
        said = format!("{said}, {files} could not be checked");
    }
    format!("{}: {said}", if report.passed { "passed" } else { "FAILED" })
}

/// What became of a limit.
pub(super) fn outcome(finding: &Finding) -> &'static str {
    match (finding.passed, finding.severity) {
        (true, _) => "ok",
        (false, Severity::Fail) => "FAILED",
        (false, Severity::Warn) => "warning",
    }
}

/// `device 0 of snapshot.pickle`
pub(super) fn subject(finding: &Finding) -> String {
    format!("device {} of {}", finding.device, plain(&finding.path))
}

/// `train.py:12 in step`, the path as it is in the repository where it is known.
pub(super) fn place(line: &Line) -> String {
    let file = line.source.as_deref().unwrap_or(&line.frame.file);
    format!("{}:{} in {}", plain(file), line.frame.line, line.frame.name)
}

/// `20 MiB held at the snapshot`
pub(super) fn share(line: &Line) -> String {
    format!("{} {}", size(line.bytes), line.what)
}

/// The findings that have not passed: those that fail the gate first, of those the worst.
pub(super) fn lost(report: &CheckReport) -> Vec<&Finding> {
    let mut lost: Vec<&Finding> = report.findings.iter().filter(|f| !f.passed).collect();
    lost.sort_by(|a, b| {
        let worse = b.excess().partial_cmp(&a.excess()).unwrap_or(Ordering::Equal);
        a.severity.cmp(&b.severity).then(worse)
    });
    lost
}

/// What is odd about the files, a sentence a code: about the first file, and how many others.
pub(super) fn notes(report: &CheckReport) -> Vec<(&Noted, String)> {
    let mut notes: Vec<(&Noted, u64)> = Vec::new();
    for noted in &report.warnings {
        match notes.iter_mut().find(|(first, _)| first.code == noted.code) {
            Some((_, others)) => *others += 1,
            None => notes.push((noted, 0)),
        }
    }
    let said = |(first, others): (_, u64)| {
        let more = match others {
            0 => String::new(),
            _ => format!(" (and so in {})", counted(others, "other")),
        };
        (first, more)
    };
    notes.into_iter().map(said).collect()
}
