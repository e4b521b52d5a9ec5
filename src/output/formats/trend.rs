//! Growth over weeks in the formats of CI systems.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::github::{escape_data, escape_property};
use super::junit::escape_xml;
use super::sarif::{ROOT, log, path_to_uri};
use crate::base::units::{escape_command_lines, escape_text};
use crate::compare::trend::{TrendKind, TrendReport, TrendRow};

/// The rule that a creeping line breaks, and the type of its failure.
const CREEP: &str = "creep";

/// An annotation for each line or peak that creeps, a note for each step, then the verdict. `source` finds a file in
/// the repository.
pub fn trend_github(report: &TrendReport, source: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    for row in &report.rows {
        let message = escape_data(&escape_text(&sentence(row)));
        let _ = match row.growth {
            TrendKind::Creep => {
                let place = place(row, &source);
                let place = place.map(|(file, line)| format!("file={},line={line},", escape_property(&file)));
                writeln!(out, "::error {}title={CREEP}::{message}", place.unwrap_or_default())
            }
            TrendKind::Step => writeln!(out, "note: {}", escape_text(&sentence(row))),
        };
    }
    let _ = writeln!(out, "oomscope check {}", escape_text(&report.summary().answer));
    out
}

/// One test, which fails with all that creeps: a CI system follows a test by its name.
pub fn trend_junit(report: &TrendReport) -> String {
    let of = |growth: TrendKind| {
        let rows = report.rows.iter().filter(|row| row.growth == growth).map(sentence);
        escape_xml(&rows.collect::<Vec<_>>().join("\n"))
    };
    let counts = format!("tests=\"1\" failures=\"{}\" errors=\"0\"", u8::from(!report.passed));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites name=\"oomscope check --trend\" {counts}>");
    let _ = writeln!(out, "  <testsuite name=\"oomscope check --trend\" {counts} skipped=\"0\">");
    let _ = writeln!(out, "    <testcase classname=\"oomscope check --trend\" name=\"{CREEP}\">");
    if !report.passed {
        let message = escape_xml(&report.summary().answer);
        let rows = of(TrendKind::Creep);
        let _ = writeln!(out, "      <failure type=\"{CREEP}\" message=\"{message}\">{rows}</failure>");
    }
    let steps = of(TrendKind::Step);
    if !steps.is_empty() {
        let _ = writeln!(out, "      <system-out>{steps}</system-out>");
    }
    out.push_str("    </testcase>\n  </testsuite>\n</testsuites>\n");
    escape_command_lines(out)
}

/// A SARIF log with a result for each line or peak that creeps, and a note for each step. `version` is that of this
/// program, `source` finds a file in the repository.
pub fn trend_sarif(report: &TrendReport, version: &str, source: impl Fn(&str) -> Option<String>) -> Value {
    let rule = json!({ "id": CREEP, "shortDescription": { "text": "Memory that grows a little every week." } });
    let result = |row: &TrendRow| {
        let place = place(row, &source);
        let location = match &place {
            Some((file, line)) => json!({
                "artifactLocation": { "uri": path_to_uri(file), "uriBaseId": ROOT },
                "region": { "startLine": line },
            }),
            None => json!({ "artifactLocation": { "uri": path_to_uri(&row.since) } }),
        };
        json!({
            "ruleId": CREEP,
            "ruleIndex": 0,
            "level": if row.growth == TrendKind::Creep { "error" } else { "note" },
            "message": { "text": sentence(row) },
            "locations": [{ "physicalLocation": location }],
            "partialFingerprints": { "trend/v1": row.line },
        })
    };
    log(version, &[rule], &report.rows.iter().map(result).collect::<Vec<_>>(), &[])
}

fn sentence(row: &TrendRow) -> String {
    let verb = if row.growth == TrendKind::Creep { "creeps: " } else { "" };
    format!("{} {verb}{}", row.line, row.describe_growth())
}

/// The file in the repository, and the line, that a row's label begins with.
fn place(row: &TrendRow, source: impl Fn(&str) -> Option<String>) -> Option<(String, u64)> {
    let (file, line) = row.place()?.rsplit_once(':')?;
    Some((source(file)?, line.parse().ok()?))
}
