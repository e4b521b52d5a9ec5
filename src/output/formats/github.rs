//! Workflow commands of GitHub Actions: an annotation on the line of code.

use std::fmt::Write as _;

use crate::base::units::escape_text;
use crate::compare::gate::{CheckReport, Finding, Severity};
use crate::output::report::gate::words::{notes, place, share, subject};

/// An annotation for every limit that does not hold, and the verdict.
pub fn github(report: &CheckReport) -> String {
    let mut out = String::new();
    for finding in report.lost() {
        let command = match finding.severity {
            Severity::Fail => "error",
            Severity::Warn => "warning",
        };
        let title = format!("{}, {}", finding.code.word(), subject(finding));
        let place = place_of(finding);
        let (title, message) = (property(&title), data(&message(finding)));
        let _ = writeln!(out, "::{command} {place}title={title}::{message}");
    }
    for (path, message) in report.not_checked() {
        let message = data(&escape_text(&format!("{path}: {message}")));
        let _ = writeln!(out, "::error title=oomscope could not check a snapshot::{message}");
    }
    // Said in the log: a late start of the recording is no news on every pull request.
    for (noted, others) in notes(report) {
        let message = escape_text(&format!("{}: {}{others}", noted.path, noted.message));
        let _ = writeln!(out, "note: {message}");
    }
    let _ = writeln!(out, "oomscope check {}", report.summary.answer);
    out
}

/// `file=,line=,` of the first line of code that lies in the repository.
fn place_of(finding: &Finding) -> String {
    let known =
        finding.lines.iter().find_map(|line| Some((line.source.as_ref()?, line.frame.line)));
    known.map_or_else(String::new, |(file, line)| format!("file={},line={line},", property(file)))
}

fn message(finding: &Finding) -> String {
    let mut message = escape_text(&finding.message);
    for line in &finding.lines {
        let _ = write!(message, "\n{}: {}", place(line), share(line));
    }
    message
}

/// A message, with what would end it written otherwise.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property, which a colon or a comma would end too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_command_is_escaped() {
        assert_eq!(data("50%\r\nof a:b,c"), "50%25%0D%0Aof a:b,c");
        assert_eq!(property("a:b,c%3A"), "a%3Ab%2Cc%253A");
    }
}
