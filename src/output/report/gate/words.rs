//! Phrases that the formats share.

use super::super::words::place_in;
use crate::base::units::{counted, escape_text, size};
use crate::compare::gate::{CheckReport, CodeLine, Finding, Noted, Severity};
use crate::stacks::frames::FrameReport;

/// Limits that do not hold and are described for people; the others are counted.
pub(crate) const SHOWN: usize = 10;

/// What became of a limit.
pub(crate) fn outcome(finding: &Finding) -> &'static str {
    match (finding.passed, finding.severity) {
        (true, _) if finding.actual.is_none() => "allowed",
        (true, _) => "ok",
        (false, Severity::Fail) => "FAILED",
        (false, Severity::Warn) => "warning",
    }
}

/// `device 0 of snapshot.pickle`
pub(crate) fn subject(finding: &Finding) -> String {
    format!("device {} of {}", finding.device, escape_text(&finding.path))
}

/// `train.py:12 in step`, the path as it is in the repository where it is known.
pub(crate) fn place(line: &CodeLine) -> String {
    let file = escape_text(line.source.as_deref().unwrap_or(&line.frame.file));
    place_in(&FrameReport { file, ..line.frame.clone() })
}

/// `20 MiB held at the snapshot`
pub(crate) fn share(line: &CodeLine) -> String {
    format!("{} {}", size(line.bytes), line.what)
}

/// A limit on all devices.
pub(crate) struct LimitKind<'a> {
    /// The finding that stands worst.
    pub(crate) worst: &'a Finding,
    /// Devices on which it does not hold.
    pub(crate) lost: u64,
    /// All devices that it is set for.
    pub(crate) all: u64,
}

/// Every limit once.
pub(crate) fn kinds(report: &CheckReport) -> Vec<LimitKind<'_>> {
    let mut kinds: Vec<LimitKind<'_>> = Vec::new();
    for finding in &report.findings {
        let alike = |kind: &&mut LimitKind<'_>| {
            (kind.worst.code, kind.worst.severity) == (finding.code, finding.severity)
        };
        let lost = u64::from(!finding.passed);
        match kinds.iter_mut().find(alike) {
            Some(kind) => {
                (kind.lost, kind.all) = (kind.lost + lost, kind.all + 1);
                if finding.excess() > kind.worst.excess() {
                    kind.worst = finding;
                }
            }
            None => kinds.push(LimitKind { worst: finding, lost, all: 1 }),
        }
    }
    kinds
}

/// What is odd about the files, a sentence a code: about the first file, and how many others.
pub(crate) fn notes(report: &CheckReport) -> Vec<(&Noted, String)> {
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
