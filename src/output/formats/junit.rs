//! `JUnit` XML, which most CI systems show as test results: one test per limit.

use std::fmt::Write as _;

use crate::base::units::{escape_command_lines, is_active, starts_with_command};
use crate::compare::gate::{CheckReport, Finding, Severity};
use crate::output::report::gate::finding_lines;

/// One test per limit and device, and one per file that could not be read.
pub fn junit(report: &CheckReport) -> String {
    let cases: Vec<&[Finding]> =
        report.findings.chunk_by(|a, b| (&a.path, a.device, a.code) == (&b.path, b.device, b.code)).collect();
    let job = report.dry_run.as_ref();
    // The file of a dry run has another name each time; a CI system follows a test by its name.
    let is_single = report.findings.windows(2).all(|pair| matches!(pair, [a, b] if a.path == b.path));
    let single_process = job.filter(|_| is_single);
    let failures = cases.iter().filter(|case| case.iter().any(|f| !f.passed && f.severity == Severity::Fail)).count()
        + usize::from(job.is_some_and(|job| !job.passed));
    let not_checked = report.not_checked();
    let errors = not_checked.len();
    let tests = cases.len() + errors + usize::from(job.is_some());
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"");
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites name=\"oomscope check\" {counts}>");
    let _ = writeln!(out, "  <testsuite name=\"oomscope check\" {counts} skipped=\"0\">");
    for case in cases {
        let first = &case[0]; // `chunk_by` yields no empty chunks
        let name = single_process.map_or(&first.path, |job| &job.command);
        let problems = case.iter().filter(|finding| !finding.passed).map(problem);
        out += &test(&format!("{name}, device {}", first.device), first.code.word(), problems);
    }
    if let Some(job) = job {
        let failure = format!("<failure type=\"dry-run\" message=\"{}\"/>", escape_xml(&job.message()));
        out += &test(&job.command, "dry-run", Some(failure).filter(|_| !job.passed));
    }
    for (path, message) in &not_checked {
        out += &test(path, "readable", [format!("<error message=\"{}\"/>", escape_xml(message))]);
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    escape_command_lines(&out)
}

fn test(class: &str, name: &str, problems: impl IntoIterator<Item = String>) -> String {
    let problems = problems.into_iter().map(|problem| format!("      {problem}\n"));
    let problems: String = problems.collect();
    let end = if problems.is_empty() { "/>".to_owned() } else { format!(">\n{problems}    </testcase>") };
    format!("    <testcase classname=\"{}\" name=\"{name}\"{end}\n", escape_xml(class))
}

/// A limit that does not hold.
fn problem(finding: &Finding) -> String {
    let [message, lines] = [&finding.message, &finding_lines(finding)].map(|text| escape_xml(text));
    match finding.severity {
        Severity::Fail => {
            let (code, lines) = (finding.code.word(), lines.trim_start());
            format!("<failure type=\"{code}\" message=\"{message}\">{lines}</failure>")
        }
        Severity::Warn => format!("<system-out>warning: {message}{lines}</system-out>"),
    }
}

/// Escapes `text` for an element or a quoted attribute. Characters that XML 1.0 cannot represent become U+FFFD.
pub(super) fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if is_active(c) || (c == '#' && starts_with_command(&text[at..])) => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_well_formed() {
        let text = escape_xml("<a b=\"c\">&amp;]]> \u{1b}[2J\u{0}\u{ffff} \u{1f600}\n'");
        assert!(text.starts_with("&lt;a b=&quot;c&quot;&gt;&amp;amp;]]&gt; \u{fffd}[2J\u{fffd}\u{fffd}"));
        let all: String = (0..=0x1_0000u32).filter_map(char::from_u32).collect();
        for document in [format!("<a>{}</a>", escape_xml(&all)), format!("<a b=\"{}\"/>", escape_xml(&all))] {
            roxmltree::Document::parse(&document).unwrap();
        }
    }
}
