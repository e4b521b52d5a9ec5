//! SARIF 2.1.0, which code hosts show next to the code.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::compare::gate::{CheckReport, CheckedJob, CodeLine, Finding};
use crate::output::report::gate::{bytes_label, finding_lines, level};
use crate::study::figures::{Figure, FigureLimit};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// The URI base that code hosts resolve to the repository's root.
pub(super) const ROOT: &str = "%SRCROOT%";

/// The rule of a dry run's verdict.
const DRY_RUN: &str = "dry-run";

/// A log of one run, with a result for each exceeded limit. `version` is that of this program.
pub fn sarif(report: &CheckReport, version: &str) -> Value {
    let figures = self::rules().map(|(figure, row)| (figure.word(), format!("{}.", row.meaning)));
    let dry_run = report.dry_run.as_ref().map(|_| (DRY_RUN, "Verdict of a dry run.".to_owned()));
    let rules = figures.chain(dry_run).map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } }));
    let rules: Vec<Value> = rules.collect();
    let mut results: Vec<Value> = report.failed_findings().into_iter().map(result).collect();
    let failed_job = report.dry_run.as_ref().filter(|job| !job.passed);
    results.extend(failed_job.map(|job| job_result(job, rules.len() - 1)));
    let unreadable = report.not_checked().into_iter().map(|(path, message)| format!("{path}: {message}"));
    let unreadable: Vec<Value> =
        unreadable.map(|text| json!({ "level": "error", "message": { "text": text } })).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "oomscope", "version": version, "rules": rules } },
            "invocations": [{
                "executionSuccessful": unreadable.is_empty(),
                "toolExecutionNotifications": unreadable,
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// The figures that can have a limit; each is a rule.
fn rules() -> impl Iterator<Item = (Figure, FigureLimit)> {
    Figure::ALL.iter().filter_map(|figure| Some((*figure, figure.limit()?)))
}

fn result(finding: &Finding) -> Value {
    let text = format!("{}{}", finding.message, finding_lines(finding));
    let lines: Vec<Value> = finding.lines.iter().filter_map(location).collect();
    // Without a code line in the repository, the result points at the snapshot.
    let (main, related) = match lines.split_first() {
        Some((first, rest)) => (first.clone(), rest.to_vec()),
        None => {
            (json!({ "physicalLocation": { "artifactLocation": { "uri": path_to_uri(&finding.path) } } }), Vec::new())
        }
    };
    let fingerprint = format!("{}/{}/{}", finding.code.word(), finding.path, finding.device);
    let mut result = json!({
        "ruleId": finding.code.word(),
        "ruleIndex": rules().position(|(figure, _)| figure == finding.code),
        "level": level(finding),
        "message": { "text": text },
        "locations": [main],
        "partialFingerprints": { "finding/v1": fingerprint },
    });
    if !related.is_empty() {
        result["relatedLocations"] = json!(related);
    }
    result
}

/// The result of a dry run that does not pass, at the line that its reason names.
fn job_result(job: &CheckedJob, rule: usize) -> Value {
    let place = job.source.as_ref().zip(job.line.as_ref());
    let place = place.map(|(file, line)| json!({ "physicalLocation": physical_location(file, line.line) }));
    json!({
        "ruleId": DRY_RUN,
        "ruleIndex": rule,
        "level": "error",
        "message": { "text": job.message() },
        "locations": place.into_iter().collect::<Vec<_>>(),
        "partialFingerprints": { "finding/v1": format!("{DRY_RUN}/{}", job.command) },
    })
}

/// The location of a code line, if it is in the repository.
fn location(line: &CodeLine) -> Option<Value> {
    let place = physical_location(line.source.as_ref()?, line.frame.line);
    Some(json!({ "physicalLocation": place, "message": { "text": bytes_label(line) } }))
}

/// A line of a file in the repository.
fn physical_location(file: &str, line: u32) -> Value {
    json!({
        "artifactLocation": { "uri": path_to_uri(file), "uriBaseId": ROOT },
        "region": { "startLine": line.max(1) },
    })
}

/// A path as a URI reference.
pub(super) fn path_to_uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        assert_eq!(path_to_uri("a b/ü.py"), "a%20b/%C3%BC.py");
        assert_eq!(path_to_uri("/app/100%.pickle"), "file:///app/100%25.pickle");
    }
}
