//! The questions of `skills/oomscope/SKILL.md`: each command is run, and the key that it names has the answer.
//! Slow: many runs of the program.

use serde_json::{Value, json};

use crate::dry_run;
use crate::support::program::{file, run, text};

const OOM: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
const KEPT: &str = "fixtures/recorded/2.15.0-losses_kept.pickle.gz";
const RANKS: &str = "fixtures/recorded/ranks";
const LOG: &str = "fixtures/logs/2.15.0-capacity.log";

/// Rows of the first table: question and command.
fn questions() -> Vec<(String, String)> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("skills/oomscope/SKILL.md");
    let skill = std::fs::read_to_string(path).unwrap();
    let rows = skill.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let row = row.replace("\\|", "\0");
        let cells: Vec<String> = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
        (cells[0].clone(), cells[1].trim_matches('`').to_owned())
    };
    rows.map(cells).collect()
}

/// The values of `paths`, which jq would print: `.step,.phase` or `.devices[0].lines[0]`.
fn jq(answer: &Value, paths: &str) -> Vec<Value> {
    let pointer = |path: &str| path.replace(['.', '['], "/").replace(']', "");
    paths.split(',').map(|path| answer.pointer(&pointer(path)).unwrap_or_else(|| panic!("no {path}")).clone()).collect()
}

/// The answer to a question of the table that begins with `start`, on these files.
fn ask(start: &str, files: &[(&str, &str)]) -> Vec<Value> {
    let all = questions();
    let (_, command) =
        all.iter().find(|(question, _)| question.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
    let (command, keys) = command.split_once(" | jq ").unwrap();
    let place = |word: &str| {
        files.iter().find(|(name, _)| *name == word).map_or(word.to_owned(), |(_, path)| (*path).to_owned())
    };
    let words: Vec<String> = command.split_whitespace().skip(1).map(place).collect();
    let ran = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(ran.code < 2, "{command}: {}", ran.err);
    jq(&serde_json::from_str(&ran.out).unwrap(), keys)
}

#[test]
fn every_question_is_answered_by_its_command() {
    let text_of = |answer: Vec<Value>| answer[0].as_str().unwrap_or_default().to_owned();
    let oom = [("FILE", OOM)];
    assert!(text_of(ask("Why does it", &oom)).contains("requested 399 MiB"));
    assert_eq!(text_of(ask("What holds", &oom)), "app/workloads.py:27 in attention");
    assert!(text_of(ask("What can be done", &oom)).starts_with("checkpoint each of 8 calls"));
    let at_peak = ask("In which step", &oom);
    assert!(at_peak[0].is_u64() && at_peak[1].is_string(), "{at_peak:?}");
    assert_eq!(ask("How much more", &[("FILE", KEPT)]), [json!(19_399_168)]);
    let fits = text_of(ask("Does the job fit", &oom));
    assert!(fits.starts_with("yes, it fits 14.5 GiB (t4): 9.55 GiB reserved") && fits.contains("headroom"), "{fits}");
    let best = &ask("Which setting", &oom)[0];
    assert_eq!((&best["kind"], &best["then"]["outcome"]), (&json!("program"), &json!("goes-on")));
    assert!(text_of(ask("Would one more", &oom)).contains("would fail"));
    assert_eq!(ask("Which rank", &[("DIR", RANKS)]), [json!("1")]);
    let [before, after] = ["base", "buffer"].map(|name| format!("fixtures/diff/{name}.pickle.gz"));
    assert!(ask("What grew", &[("BEFORE", &before), ("AFTER", &after)])[0]["delta_bytes"].as_i64() > Some(0));
    assert_eq!(ask("Does the memory stay", &oom), [json!(true)]);
    assert!(text_of(ask("What does a log", &[("LOG", LOG)])).starts_with("out of memory"));
    assert_eq!(questions().len(), 12, "each question is asked here");
}

#[test]
fn the_verdict_of_a_dry_run_is_in_the_brief_report() {
    let directory = tempfile::tempdir().unwrap();
    for (name, fails, verdict) in [("fits.json", false, "would-fit"), ("fails.json", true, "would-not-fit")] {
        let recording = dry_run::recording(&json!([]), 0, fails).to_string();
        let path = file(&directory, name, recording.as_bytes());
        let brief = run(&["analyze", "--format", "json", "--brief", &path]).out;
        let brief: Value = serde_json::from_str(&brief).unwrap();
        assert_eq!(brief["dry_run"], verdict);
    }
    let line = run(&["analyze", "--format", "jsonl", &text(&directory.path().join("fits.json"))]).out;
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["dry_run"], "would-fit");
    let with_gpu = run(&["analyze", "--format", "json", "--brief", OOM]).out;
    assert_eq!(serde_json::from_str::<Value>(&with_gpu).unwrap()["dry_run"], Value::Null);
}
