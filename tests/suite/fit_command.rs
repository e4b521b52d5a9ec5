//! `oomscope fit -- COMMAND`: the answer is a size that was run. Slow: many runs of the program.
#![cfg(unix)]

use serde_json::{Value, json};

use crate::support::program::{oomscope, refusal, run};

/// The first lines of a job that records `dense` at the sizes of the fixtures. At any other size a request fails.
const JOB: &str = r#"case $1 in 4|8|13) cp "$2/sizes/2.15.0-dense-$1.pickle.gz" "$OOMSCOPE_DIR";;
*) cp "$2/2.15.0-oom_varlen-at-oom.pickle.gz" "$OOMSCOPE_DIR"; exit 1;; esac"#;

/// The same, but it ends with an error unless the size is a multiple of 8.
const REFUSING_JOB: &str = r#"case $1 in 8) cp "$2/sizes/2.15.0-dense-8.pickle.gz" "$OOMSCOPE_DIR";;
16) cp "$2/2.15.0-oom_varlen-at-oom.pickle.gz" "$OOMSCOPE_DIR"; exit 1;;
*) echo "a multiple of 8, please"; exit 3;; esac"#;

/// The answer for a job on a device, and what was printed on standard error.
fn search(options: &[&str], size: &str) -> (Value, Vec<String>) {
    search_with(JOB, options, size)
}

fn search_with(job: &str, options: &[&str], size: &str) -> (Value, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let fixtures = std::fs::canonicalize("fixtures").unwrap();
    let start = ["fit", "--format", "json"].into_iter().chain(options.iter().copied());
    let job = ["--", "sh", "-c", job, "job", size, fixtures.to_str().unwrap()];
    let args: Vec<&str> = start.chain(job).collect();
    let ran = oomscope(&args).current_dir(directory.path()).output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    let report = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {err}"));
    (report, err.lines().filter(|line| line.contains("(run ")).map(str::to_owned).collect())
}

#[test]
fn the_predicted_size_and_the_next_are_run() {
    let (report, lines) = search(&["--capacity", "244MiB"], "{N}");
    let runs: Vec<(u64, bool)> = report["runs"].as_array().unwrap().iter().map(run_of).collect();
    assert_eq!(runs, [(4, true), (8, true), (13, true), (14, false)]);
    assert_eq!((&report["largest"], &report["fails"], &report["is_exact"]), (&json!(13), &json!(14), &json!(true)));
    let answer = report["summary"]["answer"].as_str().unwrap();
    assert!(answer.starts_with("largest N on ") && answer.ends_with(": 13"), "{answer}");
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[2], "oomscope: N = 13: completes with 252 MiB reserved (run 3 of at most 5)");
}

fn run_of(run: &Value) -> (u64, bool) {
    (run["size"].as_u64().unwrap(), run["fits"].as_bool().unwrap())
}

/// The job fails at all other sizes, though the device has room.
#[test]
#[ignore = "slow: .ci/release runs it"]
fn a_size_that_no_run_confirms_is_no_answer() {
    let (report, lines) = search(&["--gpu", "t4"], "{N}");
    assert_eq!(lines.len(), 5);
    assert_eq!((&report["largest"], &report["is_exact"]), (&json!(8), &json!(false)));
    assert!(report["fails"].as_u64().unwrap() > 13);
    let answer = report["summary"]["answer"].as_str().unwrap();
    assert!(answer.contains(": 8; ") && answer.ends_with(" fails, none between was run"), "{answer}");
}

#[test]
fn the_first_sizes_are_given_or_those_that_may_be_the_answer() {
    let (report, _) = search(&["--capacity", "244MiB", "--sizes", "13,4"], "{N}");
    assert_eq!((&report["runs"].as_array().unwrap().len(), &report["largest"]), (&3, &json!(13)));
    let (report, _) = search(&["--capacity", "244MiB", "--multiple-of", "4"], "{N}");
    let runs: Vec<(u64, bool)> = report["runs"].as_array().unwrap().iter().map(run_of).collect();
    assert_eq!(runs, [(4, true), (8, true), (12, false)]);
}

#[test]
fn sizes_that_the_program_refuses_lead_to_their_multiple() {
    let (report, _) = search_with(REFUSING_JOB, &["--capacity", "244MiB"], "{N}");
    let runs: Vec<(u64, bool)> = report["runs"].as_array().unwrap().iter().map(run_of).collect();
    assert_eq!(runs, [(8, true), (16, false)]);
    assert_eq!((&report["largest"], &report["is_exact"]), (&json!(8), &json!(true)));
    assert_eq!(report["only"], "a multiple of 8");
    assert_eq!(report["refused"], json!([{ "size": 4, "reason": "a multiple of 8, please" }]));
}

#[test]
fn wrong_usage_is_refused() {
    assert!(refusal(&["fit", "--", "train", "4"]).contains("no word in braces"));
    assert!(refusal(&["fit", "--sizes", "4", "--", "train", "{N}"]).contains("give two or more"));
    assert!(run(&["fit", "--set", "default", "--", "train", "{N}"]).err.contains("cannot be used with"));
    assert!(run(&["fit"]).err.contains("SIZE=SNAPSHOT"));
}

#[test]
fn a_refusal_is_json_too() {
    let file = |program: &str, size: u64| format!("{size}=fixtures/sizes/2.15.0-{program}-{size}.pickle.gz");
    let ran = run(&["fit", "--format", "json", &file("dense", 4), &file("gan", 8)]);
    assert!(ran.code == 2 && ran.err.contains("cannot predict other sizes"), "{}", ran.err);
    let refused: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&refused["schema"], &refused["code"]),
        (&json!("oomscope/fit-refused/1"), &json!("different-programs"))
    );
    assert!(refused["paired_ratio"].as_f64().unwrap() < 0.5);
    assert_eq!(format!("oomscope: {}\n", refused["summary"]["answer"].as_str().unwrap()), ran.err);
    let ran = run(&["fit", "--format", "json", &file("dense", 4)]);
    let refused: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&refused["code"], &refused["paired_ratio"]), (&json!("too-few-sizes"), &Value::Null));
}
