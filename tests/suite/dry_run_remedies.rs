//! Remedies that are tried by running the job again: `dry-run --try`.
//!
//! The jobs are shell scripts that leave a recording.

use std::path::Path;

use serde_json::{Value, json};

use super::dry_run::{dry_run, said};
use crate::support::schema;

/// A job that leaves the recording of a failure, unless its size is below 8 or `settings` are in effect.
fn failing_job(settings: &str) -> String {
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name).display().to_string();
    let (failed, ended) = (fixture("2.15.0-holes-at-oom.pickle.gz"), fixture("2.15.0-holes-expandable.pickle.gz"));
    format!(
        "if [ $0 -lt 8 ] || [ \"$PYTORCH_ALLOC_CONF\" = {settings} ]; then cp {ended} $OOMSCOPE_DIR/p-exit1.pickle.gz; \
         else cp {failed} $OOMSCOPE_DIR/p-oom1.pickle.gz; exit 7; fi"
    )
}

#[test]
fn remedies_are_tried_by_running_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let job = failing_job("expandable_segments:True");
    let arguments = ["--try", "--gpu", "t4", "-o", "out", "--", "sh", "-c", &job, "32"];
    let output = dry_run(directory.path(), &arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(7), "the exit code of the first run: {said}");
    let start = "with expandable_segments:True the job runs to its end on Tesla T4 (dry run)\n\ntried on Tesla T4 ";
    let (_, table) = said.split_once(start).unwrap_or_else(|| panic!("{said}"));
    let rows = [("expandable_segments:True", "runs to its end"), ("unchanged", "fails: ")];
    for ((remedy, result), line) in rows.into_iter().zip(table.lines().skip(1)) {
        assert!(line.contains(remedy) && line.contains(result), "{remedy}: {said}");
    }
    assert!(said.ends_with("copy    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n"), "{said}");
    assert!(directory.path().join("out/try-1/p-exit1.pickle.gz").exists());
}

#[test]
fn runs_with_remedies_are_an_object() {
    let directory = tempfile::tempdir().unwrap();
    let job = failing_job("expandable_segments:True");
    let arguments = ["--try", "--gpu", "t4", "--format", "json", "-o", "out", "--", "sh", "-c", &job, "32"];
    let output = dry_run(directory.path(), &arguments);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], schema::faults(&report)), (&json!("oomscope/dry-run-try/1"), vec![]));
    let outcomes: Vec<&Value> = report["runs"].as_array().unwrap().iter().map(|run| &run["outcome"]).collect();
    assert_eq!((outcomes[0], outcomes[1]), (&json!("fails"), &json!("ends")));
    assert_eq!(report["summary"]["copy"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert_eq!(report["summary"]["action"], report["runs"][1]["remedy"]);
}

#[test]
fn the_answer_of_one_run_is_that_of_analyze() {
    let directory = tempfile::tempdir().unwrap();
    let job = format!("echo printed; {}", failing_job("none"));
    let output = dry_run(directory.path(), &["--format", "json", "-o", "out", "--", "sh", "-c", &job, "32"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], schema::faults(&report)), (&json!("oomscope/analyze/1"), vec![]));
    assert_eq!((output.status.code(), report["snapshots"].as_array().unwrap().len()), (Some(7), 1));
    assert_eq!(std::fs::read_to_string(directory.path().join("out/output.txt")).unwrap(), "printed\n");
    let nothing = dry_run(directory.path(), &["--format", "json", "--", "true"]);
    let report: Value = serde_json::from_slice(&nothing.stdout).unwrap();
    assert_eq!((&report["snapshots"], &report["dry_run"]), (&json!([]), &Value::Null), "{report}");
}

#[test]
fn nothing_is_tried_if_nothing_failed() {
    let directory = tempfile::tempdir().unwrap();
    let job = failing_job("none");
    let output = dry_run(directory.path(), &["--try", "-o", "out", "--", "sh", "-c", &job, "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!directory.path().join("out/try-1").exists());
}
