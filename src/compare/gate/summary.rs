//! Combines all findings into a report with a summary.

use super::finding::{CodeLine, Finding, Severity};
use super::judge::JudgedSnapshot;
use super::verdict::{CheckReport, RankCount, failed_findings, not_checked, violations, worst_device};
use crate::analysis::Unreadable;
use crate::base::summary::Summary;
use crate::base::units::{count, counted, size};
use crate::base::warning::{Code, RECORD_HISTORY_CALL};

impl CheckReport {
    /// Combines the results of all snapshots.
    pub fn new(
        judged: Vec<JudgedSnapshot>,
        missing: Vec<Finding>,
        config: Option<String>,
        unreadable: Vec<Unreadable>,
        ranks: Option<usize>,
    ) -> Self {
        let ranks = ranks.map(|expected| RankCount { expected, checked: judged.len() });
        let (mut findings, mut replayed, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for snapshot in judged {
            findings.extend(snapshot.findings);
            replayed.extend(snapshot.replayed);
            warnings.extend(snapshot.warnings);
        }
        findings.extend(missing);
        let is_complete = not_checked(&unreadable, ranks).is_empty();
        let passed = is_complete && violations(&findings, Severity::Fail) == 0;
        Self {
            schema: "oomscope/check/1",
            summary: summarize(&findings, verdict(&findings, &unreadable, ranks, passed)),
            passed,
            config,
            worst: worst_device(&findings),
            findings,
            replayed,
            warnings,
            unreadable,
            ranks,
        }
    }
}

/// The summary with this `answer`; the worst finding names a source line or the missing data.
fn summarize(findings: &[Finding], answer: String) -> Summary {
    let failed = failed_findings(findings);
    let Some(worst) = failed.first() else { return Summary::from_answer(answer) };
    let (code, device, path) = (worst.code.word(), worst.device, &worst.path);
    let action = format!("{code} of device {device} of {path}: {}", worst.message);
    let place = |line: &CodeLine| {
        let file = line.source.as_deref().unwrap_or(&line.frame.file);
        format!("{file}:{}", line.frame.line)
    };
    let first = worst.lines.first();
    let who = first.map(|line| format!("{} in {}: {} {}", place(line), line.frame.name, size(line.bytes), line.what));
    let lacks_history = worst.missing.is_some_and(|code| matches!(code, Code::NoTrace | Code::HistoryLost));
    let record = lacks_history.then(|| RECORD_HISTORY_CALL.to_owned());
    Summary { answer, who, action: Some(action), copy: first.map(place).or(record) }
}

/// The verdict in one sentence.
fn verdict(findings: &[Finding], unreadable: &[Unreadable], ranks: Option<RankCount>, passed: bool) -> String {
    let all = findings.len() as u64;
    let failed = violations(findings, Severity::Fail) as u64;
    let warned = violations(findings, Severity::Warn) as u64;
    let mut result = match (failed, all) {
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
        result = format!("{result}, {} {only} {}", count(warned), if warned == 1 { "warns" } else { "warn" });
    }
    let mut parts = vec![result];
    if !unreadable.is_empty() {
        let files = counted(unreadable.len() as u64, "file");
        parts.push(format!("{files} could not be checked"));
    }
    if let Some(ranks) = ranks.filter(|ranks| ranks.checked != ranks.expected) {
        parts.push(format!("{} of {} ranks were checked", ranks.checked, ranks.expected));
    }
    // If only unreadable or missing files fail the check, name them first.
    if failed == 0 && !passed {
        parts.rotate_left(1);
    }
    format!("{}: {}", if passed { "passed" } else { "FAILED" }, parts.join(", "))
}
