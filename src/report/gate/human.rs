//! The page of `oomscope check`.

use super::super::style::{Style, wrap};
use super::super::table::table;
use super::words::{lost, notes, outcome, place, share, subject, verdict};
use crate::gate::{CheckReport, Finding, Worst};
use crate::units::{count, counted, plain};

/// Limits that do not hold and are described; the others are counted.
const SHOWN: usize = 10;

/// The page for a person.
pub fn check_page(report: &CheckReport, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    let verdict = verdict(report);
    page.line(&if report.passed { style.heading(&verdict) } else { style.alarm(&verdict) });
    if let Some(config) = &report.config {
        page.text(&format!("limits of {}, and of the command line", plain(config)));
    }
    if let Some(worst) = &report.worst {
        page.text(&worst_of_all(worst));
    }
    page.line("");
    page.limits(&report.findings);
    let lost = lost(report);
    for finding in lost.iter().take(SHOWN) {
        page.line("");
        page.finding(finding);
    }
    if let Some(more @ 1..) = lost.len().checked_sub(SHOWN) {
        page.line("");
        page.line(&format!("and {} more: --format json lists all of them", count(more as u64)));
    }
    if !report.warnings.is_empty() || !report.unreadable.is_empty() {
        page.line("");
    }
    for (noted, others) in notes(report) {
        let path = plain(&noted.path);
        page.text(&format!("note: {path}: {}{others} [{}]", noted.message, noted.code));
    }
    for file in &report.unreadable {
        page.text(&format!("not checked: {}: {}", plain(&file.path), plain(&file.message)));
    }
    page.out
}

/// Which of several stands worst.
fn worst_of_all(worst: &Worst) -> String {
    let mut lost = Vec::new();
    if worst.failed > 0 {
        let verb = if worst.failed == 1 { "does" } else { "do" };
        lost.push(format!("{} {verb} not hold", counted(worst.failed as u64, "limit")));
    }
    if worst.warned > 0 {
        lost.push(counted(worst.warned as u64, "warning"));
    }
    format!("worst: device {} of {}: {}", worst.device, plain(&worst.path), lost.join(", "))
}

struct Page {
    out: String,
    style: Style,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn text(&mut self, text: &str) {
        let wrapped = wrap(text, self.style.width, "  ");
        self.line(&wrapped);
    }

    /// A row a limit; of several devices, that of the one that stands worst.
    fn limits(&mut self, findings: &[Finding]) {
        let mut kinds: Vec<Vec<&Finding>> = Vec::new();
        for finding in findings {
            let is_kind = |kind: &&mut Vec<&Finding>| {
                kind.first()
                    .is_some_and(|f| (f.code, f.severity) == (finding.code, finding.severity))
            };
            match kinds.iter_mut().find(is_kind) {
                Some(kind) => kind.push(finding),
                None => kinds.push(vec![finding]),
            }
        }
        let are_several = kinds.iter().any(|kind| kind.len() > 1);
        if kinds.is_empty() {
            return;
        }
        let rows = kinds.iter().filter_map(|kind| Self::row(kind, are_several)).collect();
        let header: &[&str] = if are_several {
            &["", "", "worst", "limit", "too much in", "worst in"]
        } else {
            &["", "", "actual", "limit"]
        };
        let table = table(self.style, header, &[0, 1, 5], rows);
        self.out.push_str(&table);
    }

    fn row(kind: &[&Finding], are_several: bool) -> Option<Vec<String>> {
        let mut worst = *kind.first()?;
        for finding in kind {
            if finding.excess() > worst.excess() {
                worst = finding;
            }
        }
        let (limit, actual) = worst.told();
        let mut row = vec![outcome(worst).to_owned(), worst.code.word().to_owned(), actual, limit];
        if are_several {
            let lost = kind.iter().filter(|f| !f.passed).count() as u64;
            row.push(format!("{} of {}", count(lost), count(kind.len() as u64)));
            row.push(subject(worst));
        }
        Some(row)
    }

    fn finding(&mut self, finding: &Finding) {
        let title = format!("{} {}", outcome(finding), finding.code.word());
        let title = if finding.severity == crate::gate::Severity::Fail {
            self.style.alarm(&title)
        } else {
            self.style.strong(&title)
        };
        self.line(&format!("{title}, {}", subject(finding)));
        let wrapped = wrap(&finding.message, self.style.width.saturating_sub(2), "  ");
        self.line(&format!("  {wrapped}"));
        for line in &finding.lines {
            let said = format!("{}: {}", self.style.strong(&place(line)), share(line));
            let wrapped = wrap(&said, self.style.width.saturating_sub(4), "      ");
            self.line(&format!("    {wrapped}"));
        }
    }
}
