//! Phrases that the page and the CI formats share.

use crate::base::units::{counted, escape_text, size};
use crate::compare::gate::{CheckReport, CodeLine, FileWarning, Finding};
use crate::stacks::frames::FrameReport;

/// `device 0 of snapshot.pickle`
pub(crate) fn device_label(finding: &Finding) -> String {
    format!("GPU {} of {}", finding.device, escape_text(&finding.path))
}

/// `train.py:12 in step`, with the path in the repository if known.
pub(crate) fn location_label(line: &CodeLine) -> String {
    let file = escape_text(line.source.as_deref().unwrap_or(&line.frame.file));
    format!("{} in {}", FrameReport { file, ..line.frame.clone() }.file_line(), line.frame.name)
}

/// `20 MiB held at the snapshot`
pub(crate) fn bytes_label(line: &CodeLine) -> String {
    format!("{} {}", size(line.bytes), line.what)
}

/// A limit over all devices.
pub(crate) struct LimitKind<'a> {
    /// The worst finding.
    pub(crate) worst: &'a Finding,
    /// Number of devices that exceed it.
    pub(crate) failing: u64,
    /// Number of devices that it applies to.
    pub(crate) all: u64,
}

/// Groups the findings by limit.
pub(crate) fn limits_by_kind(report: &CheckReport) -> Vec<LimitKind<'_>> {
    let mut kinds: Vec<LimitKind<'_>> = Vec::new();
    for finding in &report.findings {
        let is_same =
            |kind: &&mut LimitKind<'_>| (kind.worst.code, kind.worst.severity) == (finding.code, finding.severity);
        let lost = u64::from(!finding.passed);
        match kinds.iter_mut().find(is_same) {
            Some(kind) => {
                (kind.failing, kind.all) = (kind.failing + lost, kind.all + 1);
                if finding.excess() > kind.worst.excess() {
                    kind.worst = finding;
                }
            }
            None => kinds.push(LimitKind { worst: finding, failing: lost, all: 1 }),
        }
    }
    kinds
}

/// The first warning of each code, and a note on how many other files have it.
pub(crate) fn warnings_by_code(report: &CheckReport) -> Vec<(&FileWarning, String)> {
    let mut notes: Vec<(&FileWarning, u64)> = Vec::new();
    for noted in &report.warnings {
        match notes.iter_mut().find(|(first, _)| first.code == noted.code) {
            Some((_, others)) => *others += 1,
            None => notes.push((noted, 0)),
        }
    }
    let with_others = |(first, others): (_, u64)| {
        let more = match others {
            0 => String::new(),
            _ => format!(" (also in {})", counted(others, "other")),
        };
        (first, more)
    };
    notes.into_iter().map(with_others).collect()
}
