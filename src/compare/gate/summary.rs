//! All findings put together, and what they come to, in the lines that the page begins with.

use super::finding::Severity;
use super::finding::{CodeLine, Finding};
use super::judge::Judged;
use super::verdict::{CheckReport, RankCount};
use crate::analysis::Unreadable;
use crate::base::summary::Summary;
use crate::base::units::{count, counted, size};
use crate::base::warning::{Code, RECORD_HISTORY_CALL};

impl CheckReport {
    /// Puts together what came of every snapshot.
    pub fn new(
        judged: Vec<Judged>,
        missing: Vec<Finding>,
        config: Option<String>,
        unreadable: Vec<Unreadable>,
        ranks: Option<usize>,
    ) -> Self {
        let mut report = Self {
            schema: "oomscope/check/1",
            summary: Summary::default(),
            passed: false,
            config,
            findings: Vec::new(),
            worst: None,
            replayed: Vec::new(),
            warnings: Vec::new(),
            unreadable,
            ranks: ranks.map(|expected| RankCount { expected, checked: judged.len() }),
        };
        for one in judged {
            report.findings.extend(one.findings);
            report.replayed.extend(one.replayed);
            report.warnings.extend(one.warnings);
        }
        report.findings.extend(missing);
        report.passed = report.not_checked().is_empty() && report.count(Severity::Fail) == 0;
        report.worst = report.worst_of_several();
        report.summary = of(&report);
        report
    }
}

/// Of all findings, the worst of which names a line of code or says what the file lacks.
fn of(report: &CheckReport) -> Summary {
    let lost = report.lost();
    let answer = verdict(report);
    let Some(worst) = lost.first() else { return Summary::from_answer(answer) };
    let (code, device, path) = (worst.code.word(), worst.device, &worst.path);
    let action = format!("{code} of device {device} of {path}: {}", worst.message);
    let place = |line: &CodeLine| {
        let file = line.source.as_deref().unwrap_or(&line.frame.file);
        format!("{file}:{}", line.frame.line)
    };
    let first = worst.lines.first();
    let who = first.map(|line| {
        format!("{} in {}: {} {}", place(line), line.frame.name, size(line.bytes), line.what)
    });
    let lacks_history =
        worst.missing.is_some_and(|code| matches!(code, Code::NoTrace | Code::HistoryLost));
    let record = lacks_history.then(|| RECORD_HISTORY_CALL.to_owned());
    Summary { answer, who, action: Some(action), copy: first.map(place).or(record) }
}

/// The verdict in one sentence.
fn verdict(report: &CheckReport) -> String {
    let all = report.findings.len() as u64;
    let failed = report.count(Severity::Fail) as u64;
    let warned = report.count(Severity::Warn) as u64;
    let mut said = match (failed, all) {
        (_, 0) => "no limit was checked".to_owned(),
        (0, 1) if warned == 0 => "the limit holds".to_owned(),
        (0, _) if warned == 0 => format!("all {} limits hold", count(all)),
        (0, _) => "no limit fails".to_owned(),
        (1, 1) => "the limit does not hold".to_owned(),
        (1, _) => format!("1 of {} limits does not hold", count(all)),
        _ => format!("{} of {} limits do not hold", count(failed), count(all)),
    };
    if warned > 0 {
        let only = if failed > 0 { "more only" } else { "only" };
        said = format!(
            "{said}, {} {only} {}",
            count(warned),
            if warned == 1 { "warns" } else { "warn" }
        );
    }
    let mut parts = vec![said];
    if !report.unreadable.is_empty() {
        let files = counted(report.unreadable.len() as u64, "file");
        parts.push(format!("{files} could not be checked"));
    }
    if let Some(ranks) = report.ranks.filter(|ranks| ranks.checked != ranks.expected) {
        parts.push(format!("{} of {} ranks were checked", ranks.checked, ranks.expected));
    }
    // First what it failed by.
    if failed == 0 && !report.passed {
        parts.rotate_left(1);
    }
    format!("{}: {}", if report.passed { "passed" } else { "FAILED" }, parts.join(", "))
}
