//! Workflow commands of GitHub Actions: an annotation on the line of code.

use std::fmt::Write as _;

use crate::base::units::escape_text;
use crate::compare::gate::CheckReport;
use crate::output::report::gate::{finding_lines, level, warnings_by_code};

/// An annotation for each exceeded limit, then the verdict.
pub fn github(report: &CheckReport) -> String {
    let mut out = String::new();
    for finding in report.failed_findings() {
        let path = escape_text(&finding.path);
        let title = format!("{}, GPU {} of {path}", finding.code.word(), finding.device);
        // The first line that is in the repository.
        let place = finding.lines.iter().find_map(|line| Some(file_and_line(line.source.as_ref()?, line.frame.line)));
        let message = escape_data(&format!("{}{}", escape_text(&finding.message), finding_lines(finding)));
        let (place, title) = (place.unwrap_or_default(), escape_property(&title));
        let _ = writeln!(out, "::{} {place}title={title}::{message}", level(finding));
    }
    if let Some(job) = report.dry_run.as_ref().filter(|job| !job.passed) {
        let place = job.source.as_ref().zip(job.line.as_ref()).map(|(file, line)| file_and_line(file, line.line));
        let message = escape_data(&escape_text(&job.message()));
        let _ = writeln!(out, "::error {}title=dry run::{message}", place.unwrap_or_default());
    }
    for (path, message) in report.not_checked() {
        let message = escape_data(&escape_text(&format!("{path}: {message}")));
        let _ = writeln!(out, "::error title=oomscope could not check a snapshot::{message}");
    }
    // Notes go to the log only: a late start of the recording needs no annotation on every pull request.
    for (noted, others) in warnings_by_code(report) {
        let message = escape_text(&format!("{}: {}{others}", noted.path, noted.message));
        let _ = writeln!(out, "note: {message}");
    }
    for line in report.baseline.iter().flat_map(|baseline| &baseline.text) {
        let _ = writeln!(out, "note: {}", escape_text(line));
    }
    let _ = writeln!(out, "oomscope check {}", report.summary().answer);
    out
}

/// `file=..,line=..,`
fn file_and_line(file: &str, line: u32) -> String {
    format!("file={},line={line},", escape_property(file))
}

/// Escapes the message of a workflow command.
pub(super) fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command, which a colon or a comma would end.
pub(super) fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_separators_of_commands() {
        assert_eq!(escape_data("50%\r\nof a:b,c"), "50%25%0D%0Aof a:b,c");
        assert_eq!(escape_property("a:b,c%3A"), "a%3Ab%2Cc%253A");
    }
}
