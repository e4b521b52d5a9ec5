//! The page of `oomscope check`.

use super::super::sheet::Page;
use super::super::style::{Style, tail, wrap};
use super::words::{Kind, SHOWN, kinds, lost, notes, outcome, place, share, subject, verdict};
use crate::gate::{CheckReport, Finding, Severity, Worst};
use crate::units::{count, counted, plain};

/// The page for a person.
pub fn check_page(report: &CheckReport, style: Style) -> String {
    let mut page = Page::new(style);
    let verdict = verdict(report);
    page.line(&if report.passed { style.heading(&verdict) } else { style.alarm(&verdict) });
    if let Some(config) = &report.config {
        page.text(&format!("limits of {}, where no flag says otherwise", plain(config)));
    }
    if let Some(worst) = &report.worst {
        page.text(&worst_of_all(worst));
    }
    let kinds = kinds(report);
    if !kinds.is_empty() {
        page.line("");
        page.limits(&kinds);
    }
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

impl Page {
    /// A row a limit; of several devices, that of the one that stands worst.
    fn limits(&mut self, kinds: &[Kind<'_>]) {
        let are_several = kinds.iter().any(|kind| kind.all > 1);
        let rows = kinds.iter().map(|kind| self.row(kind, are_several)).collect();
        let header: &[&str] = if are_several {
            &["", "", "worst", "limit", "not held in", "device", "worst in"]
        } else {
            &["", "", "actual", "limit"]
        };
        self.table(header, &[0, 1, 6], rows);
    }

    fn row(&self, kind: &Kind<'_>, are_several: bool) -> Vec<String> {
        let worst = kind.worst;
        let (limit, actual) = worst.told();
        let mut row = vec![outcome(worst).to_owned(), worst.code.word().to_owned(), actual, limit];
        if are_several {
            row.push(format!("{} of {}", count(kind.lost), count(kind.all)));
            // What is left of the line beside the other columns.
            let room = self.style.width.saturating_sub(72).max(18);
            row.push(worst.device.to_string());
            row.push(tail(&plain(&worst.path), room, self.style));
        }
        row
    }

    fn finding(&mut self, finding: &Finding) {
        let title = format!("{} {}", outcome(finding), finding.code.word());
        let title = if finding.severity == Severity::Fail {
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
