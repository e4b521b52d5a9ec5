//! `oomscope check` compares with a baseline only what is comparable, and replaces a baseline by nothing that has less.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::check::{NO_TRACE, check};
use super::check_command::holding;
use crate::support::program::{file, run, text};

/// A job on this rank of two, as the recorder notes it.
fn rank(number: u64) -> Value {
    let mut recording = holding(100, 7);
    let noted = json!({ "rank": number.to_string(), "world_size": "2", "host": "vm", "pid": 100 + number });
    recording["oomscope"].as_object_mut().unwrap().extend(noted.as_object().unwrap().clone());
    recording
}

/// Exit code of a check of `path` with the entry `x` of `baseline`, and what it says on standard error.
fn with_entry(path: &str, baseline: &str, options: &[&str]) -> (i32, String) {
    let ran = run(&[&["check", "--baseline", baseline, "--entry", "x"], options, &[path]].concat());
    (ran.code, ran.err)
}

#[test]
fn incomparable_recordings_do_not_pass_unless_allowed() {
    let directory = TempDir::new().unwrap();
    let baseline = text(&directory.path().join("baseline.json"));
    let before = file(&directory, "before.json", holding(100, 7).to_string().as_bytes());
    assert_eq!(with_entry(&before, &baseline, &["--add"]).0, 0);
    assert_eq!(with_entry(&before, &baseline, &[]).0, 0);
    let original = holding(7, 7).to_string();
    for (from, to, code) in [
        ("NVIDIA A10", "Tesla T4", "other-gpu"),
        ("2.15.0", "2.14.1+cu130", "other-release"),
        ("/app/train.py", "/app/sample.py", "other-program"),
    ] {
        let after = file(&directory, "after.json", original.replace(from, to).as_bytes());
        let (exit, report) = check(&["--baseline", &baseline, "--entry", "x", &after]);
        let objections = report["objections"].as_array().unwrap();
        assert_eq!((exit, &report["passed"], objections.len()), (1, &json!(false), 1), "{report}");
        assert_eq!((&objections[0]["code"], &objections[0]["allowed"]), (&json!(code), &json!(false)));
        let (before, after_value) =
            (objections[0]["before"].as_str().unwrap(), objections[0]["after"].as_str().unwrap());
        assert!(from.ends_with(before) && to.ends_with(after_value), "{report}");
        for format in ["github", "junit", "sarif", "markdown", "human"] {
            let ran = run(&["check", "--baseline", &baseline, "--entry", "x", "--format", format, &after]);
            assert!(ran.code == 1 && ran.out.contains(after_value), "{format}: {}", ran.out);
        }
        assert_eq!(with_entry(&after, &baseline, &["--allow-missing", code]).0, 0, "{code}");
        let more = file(&directory, "more.json", holding(700, 7).to_string().replace(from, to).as_bytes());
        assert_eq!(with_entry(&more, &baseline, &["--allow-missing", code]).0, 1, "{code}");
    }
    // Another build of the release, and a function that moved, are comparable.
    for (from, to) in [("2.15.0", "2.15.0+cu128"), ("\"line\":7", "\"line\":70")] {
        let after = file(&directory, "after.json", original.replace(from, to).as_bytes());
        assert_eq!(with_entry(&after, &baseline, &[]).0, 0, "{to}");
    }
}

#[test]
fn recordings_of_strangers_show_their_program_and_release() {
    let directory = TempDir::new().unwrap();
    let baseline = text(&directory.path().join("baseline.json"));
    let codes = |before: &str, after: &str| {
        let [before, after] = [before, after].map(|name| format!("fixtures/{name}.pickle.gz"));
        assert_eq!(with_entry(&before, &baseline, &["--update", "--allow-missing", "truncated,history-lost"]).0, 0);
        let (_, report) = check(&["--baseline", &baseline, "--entry", "x", &after]);
        let codes = report["objections"].as_array().cloned().unwrap_or_default();
        codes.iter().map(|objection| objection["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(codes("diff/base", "diff/leak"), [""; 0]);
    assert_eq!(codes("2.15.0-gpt_varlen-late", "diff/leak"), ["other-program"]);
    assert_eq!(codes("2.5.1-graphs", "2.12.1-graphs"), ["other-release"]);
}

#[test]
fn a_row_of_a_baseline_has_one_rank() {
    let directory = TempDir::new().unwrap();
    let baseline = text(&directory.path().join("baseline.json"));
    for name in ["a", "b"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
        for number in 0..2 {
            file(&directory, &format!("{name}/rank{number}.json"), rank(number).to_string().as_bytes());
        }
    }
    let [first, second] = ["a", "b"].map(|name| text(&directory.path().join(name)));
    // Two jobs are not one with more ranks, neither when the entry is written nor later.
    let both = |options: &[&str]| {
        run(&[&["check", "--baseline", &baseline, "--entry", "x"], options, &[&first, &second]].concat())
    };
    let ran = both(&["--add"]);
    assert!(ran.code == 1 && ran.err.contains("have the same name"), "{}", ran.err);
    assert!(!directory.path().join("baseline.json").exists());
    assert_eq!(with_entry(&first, &baseline, &["--add"]).0, 0);
    assert_eq!(with_entry(&first, &baseline, &[]).0, 0);
    assert!(both(&[]).err.contains("have the same name"));
    // One rank of two, as a file, a directory or a pattern.
    std::fs::remove_file(directory.path().join("b/rank1.json")).unwrap();
    for path in [&second, &format!("{second}/*.json"), &format!("{second}/rank0.json")] {
        assert_eq!(with_entry(path, &baseline, &["--ranks", "1"]).0, 1, "{path}");
    }
    // A second attempt of rank 0 is not rank 1.
    let mut restarted = rank(0);
    restarted["oomscope"]["pid"] = json!(900);
    file(&directory, "b/again.json", restarted.to_string().as_bytes());
    let (code, report) = check(&["--max-ooms", "0", &second]);
    assert_eq!(
        (code, &report["ranks"]["checked"], &report["ranks"]["repeated"][0]["rank"]),
        (1, &json!(1), &json!("0"))
    );
    // Rows that somebody copied.
    let written = std::fs::read_to_string(&baseline).unwrap().replace("rank1.json", "rank0.json");
    let copied = file(&directory, "copied.json", written.as_bytes());
    let (code, err) = with_entry(&first, &copied, &[]);
    assert!(code == 2 && err.contains("has GPU 0 of rank0.json twice"), "{err}");
}

#[test]
fn a_baseline_is_not_replaced_by_less() {
    let directory = TempDir::new().unwrap();
    let baseline = text(&directory.path().join("baseline.json"));
    std::fs::create_dir(directory.path().join("job")).unwrap();
    let job = text(&directory.path().join("job"));
    for number in 0..2 {
        file(&directory, &format!("job/rank{number}.json"), rank(number).to_string().as_bytes());
    }
    assert_eq!(with_entry(&job, &baseline, &["--add"]).0, 0);
    let good = std::fs::read_to_string(&baseline).unwrap();
    let mut empty = holding(100, 7);
    empty["device_traces"] = json!([[]]);
    let mut second_device = holding(100, 7);
    let mut segment = second_device["segments"][0].clone();
    segment["device"] = json!(1);
    second_device["segments"].as_array_mut().unwrap().push(segment);
    second_device["device_traces"].as_array_mut().unwrap().push(json!([]));
    let [empty, second_device] = [("empty.json", empty), ("second.json", second_device)]
        .map(|(name, recording)| file(&directory, name, recording.to_string().as_bytes()));
    let wrapped = "fixtures/2.15.0-gpt_varlen-wrapped.pickle.gz";
    let late = "fixtures/2.15.0-gpt_varlen-late.pickle.gz";
    let rank0 = format!("{job}/rank0.json");
    for (path, why, allowed) in [
        (NO_TRACE, "no history was recorded", "no-trace"),
        (&*empty, "no history was recorded", "no-trace"),
        (&second_device, "no history was recorded", "no-trace"),
        (wrapped, "the ring is full", "history-lost"),
        (late, "starts late", "truncated"),
        (&*rank0, "GPU 0 of rank1.json, which is missing now", "not-checked"),
    ] {
        for option in ["--update", "--add"] {
            // An entry that is there is compared under --add, and one that is not is written.
            let entry = if option == "--add" { "new" } else { "x" };
            let ran = run(&["check", "--baseline", &baseline, "--entry", entry, option, "--ranks", "1", path]);
            if option == "--update" || allowed != "not-checked" {
                assert!(ran.code == 1 && ran.err.contains(why), "{option} {path}: {} {}", ran.code, ran.err);
                assert_eq!(std::fs::read_to_string(&baseline).unwrap(), good, "{option} {path}");
            }
        }
    }
    for (path, allowed) in [(late, "truncated,not-checked"), (&*rank0, "not-checked")] {
        assert_eq!(
            with_entry(path, &baseline, &["--update", "--ranks", "1", "--allow-missing", allowed]).0,
            0,
            "{path}"
        );
    }
}
