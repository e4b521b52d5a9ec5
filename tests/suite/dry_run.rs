//! `oomscope dry-run`: what it says of itself, of what it could not know, and of what it cannot do.
//!
//! Those that start a program need Python 3.8 or later, and have the stand-in for torch of tests/python/fake.
//! Slow: many runs of the program.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::made;
use crate::support::program::{analyze, file, run};
use crate::support::python::has_python;

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn dry_run(directory: &Path, arguments: &[&str]) -> Output {
    let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/fake");
    Command::new(env!("CARGO_BIN_EXE_oomscope"))
        .current_dir(directory)
        .arg("dry-run")
        .args(arguments)
        .env("PYTHONPATH", fake)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_CACHE_HOME", directory)
        .output()
        .unwrap()
}

pub(super) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn impossible_options_are_refused_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        (&["--gpu", "gtx1080", "--", "true"][..], "name one like it and give --memory"),
        (&["--memory", "540MiB", "--", "true"][..], "takes 540 MiB, which leaves nothing"),
        (&["--rank", "1", "--", "true"][..], "such as 3/64"),
        (&["--value", "train.py=1", "--", "true"][..], "give a line and a value"),
        (&["--rank", "64/64", "--", "true"][..], "are 0 to 63"),
    ];
    for (arguments, sentence) in cases {
        let output = dry_run(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(sentence), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn a_torch_without_cuda_headers_is_reported_and_not_run() {
    if !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let command = ["--", "python3", "-c", "import torch; print('it went on')"];
    let output = dry_run(directory.path(), &command);
    let errors = said(&output);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("oomscope: no dry run: "), "{errors}");
    assert!(!errors.contains("Traceback"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
#[cfg(unix)]
fn no_file_of_the_user_changes() {
    if !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let best = file(&directory, "best.pt", b"real");
    let program = "open('best.pt', 'w').write('zeros'); print(open('best.pt').read())";
    let command = ["--", "python3", "-c", program];
    let output = dry_run(directory.path(), &command);
    let lines = said(&output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "zeros\n");
    assert_eq!(std::fs::read(&best).unwrap(), b"real");
    assert!(lines.contains("files that the program writes go to oomscope-dry-run-1/files"), "{lines}");
    assert!(lines.contains("1 file that the program wrote is in oomscope-dry-run-1/files: /"), "{lines}");
    assert!(lines.ends_with("/best.pt\n"), "{lines}");

    let output = dry_run(directory.path(), &[&["--real-files"], &command[..]].concat());
    assert_eq!(std::fs::read(&best).unwrap(), b"zeros");
    assert!(!said(&output).contains("that the program"), "{}", said(&output));
}

#[test]
#[cfg(unix)]
fn one_rank_of_many_gets_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let told = "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK";
    for (options, expected) in [
        (&["--rank", "11/64"][..], "11 of 64, 3 of 8 on 1\n"),
        (&["--rank", "11/64", "--devices", "4"][..], "11 of 64, 3 of 4 on 2\n"),
        (&["--rank", "0/2"][..], "0 of 2, 0 of 2 on 0\n"),
    ] {
        let command = [options, &["--", "sh", "-c", told]].concat();
        let output = dry_run(directory.path(), &command);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", said(&output));
    }
}

/// A recording of one request for 100 MiB and its end, at 1 s and 3 s, by a dry run with these `reads`.
pub(super) fn recording(reads: &Value, cudnn: u64, fails: bool) -> Value {
    let frames = made::frames(&[("/app/train.py", 7, "main")]);
    let entry = |action: &str, time: u64| made::entry(action, 0x4000_0000_0000, 100 * MIB, time, &frames);
    let mut trace = vec![
        entry("segment_alloc", 1_000_000),
        entry("alloc", 1_000_000),
        entry("free_requested", 3_000_000),
        entry("free_completed", 3_000_000),
    ];
    if fails {
        let mut oom = made::entry("oom", 0, 200 * MIB, 4_000_000, &frames);
        oom["device_free"] = json!(0);
        trace.push(oom);
    }
    let segment = made::segment(0, &[made::free(0x4000_0000_0000, 100 * MIB)]);
    let dry_run = json!({
        "gpu": "NVIDIA A10", "capability": "8.6", "total_bytes": 22_589 * MIB, "context_bytes": 260 * MIB,
        "reads": reads, "reads_untold": 0,
        "unsized": { "cudnn": cudnn, "cusolver": 0, "cufft": 0, "cusparse": 0, "timings": 0 },
        "missing": [], "unfilled_bytes": 0, "stopped": false, "end": { "kind": "finished" },
    });
    json!({ "segments": [segment], "device_traces": [trace],
            "oomscope": { "reason": "exit", "torch": "2.15.0", "dry_run": dry_run } })
}

pub(super) fn read(operators: &str, count: u64, at_us: u64, line: u64) -> Value {
    let frames = json!([{ "filename": "/app/train.py", "line": line, "name": "main" }]);
    json!({ "operators": operators, "count": count, "bytes": 4, "first_us": at_us, "last_us": at_us, "frames": frames,
            "usage": "report" })
}

/// The report on a recording, and the page.
pub(super) fn report_and_page(recording: &Value) -> (Value, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "dry.json", recording.to_string().as_bytes());
    let page = run(&["--wide", "--full", "analyze", &path]).out;
    (analyze(&[&path])["snapshots"][0].clone(), page)
}

#[test]
fn a_page_begins_with_the_missing_gpu_and_the_values_read() {
    let reads = json!([read("_local_scalar_dense item", 3, 900_000, 88)]);
    let (report, page) = report_and_page(&recording(&reads, 0, false));
    assert_eq!(report["dry_run"]["certainty"], "may-differ");
    assert_eq!(report["dry_run"]["reads"][0]["operator"], "item");
    assert!(page.contains("would fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("no GPU was used"), "{page}");
    assert!(page.contains("train.py:88 in main by item, 3 times in all; the program only reports them"), "{page}");
}

#[test]
fn the_assumed_length_of_generated_texts_is_a_note() {
    let mut generated = recording(&json!([]), 0, false);
    for (length, words) in [("max", "have the maximum length"), ("min", "end after one token")] {
        generated["oomscope"]["dry_run"]["generated"] = json!(length);
        let (_, page) = report_and_page(&generated);
        assert!(page.contains("generated texts are assumed") && page.contains(words), "{page}");
    }
    let (_, page) = report_and_page(&recording(&json!([]), 0, false));
    assert!(!page.contains("generated texts"), "{page}");
}

#[test]
fn one_rank_that_ran_alone_is_reported() {
    let mut alone = recording(&json!([]), 0, false);
    alone["oomscope"]["rank"] = json!("3");
    alone["oomscope"]["world_size"] = json!("64");
    let (report, _) = report_and_page(&alone);
    assert!(report["dry_run"].get("alone").is_none());
    alone["oomscope"]["dry_run"]["alone"] = json!(true);
    let (report, page) = report_and_page(&alone);
    assert_eq!(report["dry_run"]["alone"], "3 of 64");
    assert!(page.contains("rank 3 of 64 ran alone"), "{page}");
}

#[test]
fn values_that_decide_sizes_and_closed_libraries_make_a_bound() {
    let masked = json!([read("nonzero index", 1, 900_000, 9)]);
    let (report, page) = report_and_page(&recording(&masked, 0, false));
    assert_eq!(report["dry_run"]["certainty"], "lower-bound");
    assert!(page.contains("may fit on NVIDIA A10 (dry run)"), "{page}");
    assert!(page.contains("and determine a size at"), "{page}");
    let (report, page) = report_and_page(&recording(&json!([]), 5, false));
    assert_eq!(report["dry_run"]["certainty"], "lower-bound");
    assert!(page.contains("only cuDNN knows the sizes of its workspaces (5 calls)"), "{page}");
}

/// A failed request beside 100 MiB in use.
fn failed_recording() -> Value {
    let mut failed = recording(&json!([]), 0, true);
    let segment = &mut failed["segments"][0];
    segment["blocks"][0]["state"] = json!("active_allocated");
    for key in ["allocated_size", "active_size", "requested_size"] {
        segment[key] = json!(100 * MIB);
    }
    let trace = failed["device_traces"][0].as_array_mut().unwrap();
    trace.retain(|entry| entry["action"] == "oom");
    failed
}

#[test]
fn nobody_else_is_on_the_device_of_a_dry_run() {
    let mut full = failed_recording();
    full["oomscope"]["devices"] = json!([{ "name": "NVIDIA A10", "total_bytes": 1000 * MIB }]);
    assert_eq!(report_and_page(&full).0["devices"][0]["ooms"][0]["verdict"], "capacity");
    full["oomscope"].as_object_mut().unwrap().remove("dry_run");
    assert_eq!(report_and_page(&full).0["devices"][0]["ooms"][0]["verdict"], "non-pytorch");
}

#[test]
fn a_request_larger_than_all_memory_is_its_own_cause() {
    let (report, page) = report_and_page(&failed_recording());
    let advice = "request less at once at train.py:7: 200 MiB is more than the 100 MiB that this process can \
                  have in all";
    assert_eq!(report["devices"][0]["advice"][0], advice);
    assert!(page.contains("do      request less at once"), "{page}");
}

#[test]
fn memory_that_a_card_does_not_report_is_not_another_process() {
    let mut recorded = failed_recording();
    recorded.as_object_mut().unwrap().remove("oomscope");
    let trace = recorded["device_traces"][0].as_array_mut().unwrap();
    let oom = trace.last_mut().unwrap();
    (oom["size"], oom["device_free"]) = (json!(22_500 * MIB), json!(22_000 * MIB));
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "a10.json", recorded.to_string().as_bytes());
    let verdict = |capacity: &str| {
        let report = analyze(&["--capacity", capacity, &path]);
        report["snapshots"][0]["devices"][0]["ooms"][0]["verdict"].clone()
    };
    assert_eq!(
        (verdict("24GiB"), verdict("A10"), verdict("25GiB")),
        (json!("capacity"), json!("capacity"), json!("non-pytorch"))
    );
}

#[test]
fn data_not_of_the_recorder_is_skipped() {
    let mut broken = recording(&json!([]), 0, false);
    broken["oomscope"]["dry_run"] = json!([1, "two"]);
    let (report, _) = report_and_page(&broken);
    assert!(report.get("dry_run").is_none());
}

/// The verdict in the JSON and the first line, of a recording whose process `end`ed so.
fn verdict(end: &Value, change: impl Fn(&mut Value)) -> (Value, Value, String) {
    let mut recorded = recording(&json!([]), 0, false);
    recorded["oomscope"]["dry_run"]["end"] = end.clone();
    change(&mut recorded);
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "dry.json", recorded.to_string().as_bytes());
    let report = analyze(&[&path]);
    let of_process = &report["snapshots"][0]["dry_run"];
    assert_eq!(report["dry_run"]["verdict"], of_process["verdict"]);
    assert_eq!(report["dry_run"]["certainty"], of_process["certainty"]);
    (report["dry_run"]["verdict"].clone(), report["dry_run"]["reason"].clone(), report_and_page(&recorded).1)
}

#[test]
fn the_end_of_the_program_decides_first() {
    let frames = json!([{ "filename": "/app/train.py", "line": 12, "name": "main" }]);
    let finished = |code: &str| json!({ "kind": "finished", "final": format!("oomscope exit code: {code}") });
    let exit = |code: &str| json!({ "kind": "exit", "code": 3, "final": format!("oomscope exit code: {code}") });
    let cases = [
        (json!({ "kind": "finished" }), "would-fit", "ran to its end"),
        (json!({ "kind": "exit", "code": 0, "frames": frames }), "would-fit", "ran to its end"),
        (json!({ "kind": "exit", "code": 3, "frames": frames }), "did-not-finish", "exit code 3 at app/train.py:12"),
        (json!({ "kind": "signal", "code": 15, "frames": frames }), "no-verdict", "signal 15 ended the program"),
        (json!({ "kind": "running" }), "no-verdict", "before the program ended"),
        (finished("???"), "would-fit", "ran to its end"),
        (finished("003"), "did-not-finish", "exit code 3"),
        // A `sys.exit(3)` that the program caught, and one that it did not.
        (exit("000"), "would-fit", "ran to its end"),
        (exit("???"), "did-not-finish", "exit code 3"),
        (json!({ "kind": "stopped" }), "may-fit", "waited for a value"),
        (
            json!({ "kind": "exception", "error": "ValueError", "message": "bad", "frames": frames }),
            "did-not-finish",
            "ValueError at app/train.py:12 in main: bad",
        ),
    ];
    for (end, expected, why) in cases {
        let (verdict, reason, page) = verdict(&end, |_| ());
        assert_eq!(verdict, expected, "{end}");
        assert!(reason.as_str().unwrap().contains(why), "{end}: {reason}");
        assert!(page.contains(&format!("{} on NVIDIA A10 (dry run)", expected.replace('-', " "))), "{page}");
    }
    let forget = |recorded: &mut Value| drop(recorded["oomscope"]["dry_run"].as_object_mut().unwrap().remove("end"));
    let (older, reason, _) = verdict(&Value::Null, forget);
    assert_eq!(older, "no-verdict");
    assert!(reason.as_str().unwrap().contains("does not show how the program ended"), "{reason}");
}

#[test]
fn a_failure_counts_also_without_history_and_until_its_line_is_served() {
    let frames = json!([{ "filename": "/app/train.py", "line": 7, "name": "main" }]);
    let finished = json!({ "kind": "finished" });
    let (unrecorded, reason, _) = verdict(&finished, |recorded| {
        let dry_run = &mut recorded["oomscope"]["dry_run"];
        dry_run["failures"] = json!([{ "device": 0, "bytes": 200 * MIB, "frames": frames }]);
        dry_run["failure_count"] = json!(1);
    });
    assert_eq!(unrecorded, "would-not-fit");
    assert_eq!(reason, "a request for 200 MiB failed at app/train.py:7 in main");
    let fails_first = |recorded: &mut Value| {
        let trace = recorded["device_traces"][0].as_array_mut().unwrap();
        trace.insert(
            0,
            json!({ "action": "oom", "size": 200 * MIB, "device_free": 0, "stream": 0, "frames": frames,
                                "time_us": 500_000, "addr": 0 }),
        );
    };
    let (retried, reason, page) = verdict(&finished, fails_first);
    assert_eq!(retried, "would-fit");
    assert!(reason.as_str().unwrap().starts_with("after its own retry with less (peak afterwards 100 MiB"), "{reason}");
    assert!(page.contains("would fit on NVIDIA A10 (dry run) after its own retry"), "{page}");
    let (elsewhere, ..) = verdict(&finished, |recorded| {
        fails_first(recorded);
        recorded["device_traces"][0][0]["frames"][0]["line"] = json!(8);
    });
    assert_eq!(elsewhere, "would-not-fit");
}

#[test]
fn an_absent_device_is_named() {
    let error = json!({ "kind": "exception", "error": "AcceleratorError", "message": "invalid device ordinal" });
    let (_, reason, _) = verdict(&error, |recorded| recorded["oomscope"]["dry_run"]["absent_device"] = json!(7));
    assert!(reason.as_str().unwrap().ends_with("the program uses GPU 7: run with --devices 8"), "{reason}");
}

#[test]
fn a_value_decides_unless_it_is_reported_or_set() {
    let verdict_with = |usage: &str, operators: &str| {
        let place = json!([{ "filename": "/app/train.py", "line": 14, "name": "main" }]);
        let mut value = read(operators, 1, 900_000, 12);
        value["usage"] = json!(usage);
        value["decided_at"] = place;
        verdict(&json!({ "kind": "finished" }), |recorded| recorded["oomscope"]["dry_run"]["reads"] = json!([value]))
    };
    for (usage, expected) in [
        ("report", "would-fit"),
        ("set", "would-fit"),
        ("branch", "may-fit"),
        ("size", "may-fit"),
        ("unknown", "may-fit"),
        ("of another release", "may-fit"),
    ] {
        assert_eq!(verdict_with(usage, "_local_scalar_dense item").0, expected, "{usage}");
    }
    for sizing in ["nonzero", "bincount", "repeat_interleave_Tensor"] {
        assert_eq!(verdict_with("report", sizing).0, "may-fit", "the size of {sizing} is a value");
    }
    assert_eq!(verdict_with("set", "nonzero").0, "would-fit");
    let (_, reason, page) = verdict_with("branch", "_local_scalar_dense item");
    let sentence = "the value read at app/train.py:12 in main by item decides how the program goes on, at app/train.py:14 \
                    in main; a dry run has no values";
    assert_eq!(reason, sentence);
    assert!(page.contains("may fit on NVIDIA A10 (dry run): the value read at app/train.py:12"), "{page}");
}

#[test]
fn a_mask_that_selects_all_may_be_why_a_request_fails() {
    let mask = |usage: &str, first_us| {
        let mut value = read("nonzero index", 1, first_us, 12);
        (value["usage"], value["value"]) = (json!(usage), json!("maximum"));
        json!([value])
    };
    let with = |reads: Value, failed_gib: u64| {
        verdict(&json!({ "kind": "finished" }), |recorded| {
            recorded["oomscope"]["dry_run"]["reads"] = reads.clone();
            if failed_gib > 0 {
                let oom = json!({ "action": "oom", "addr": 0, "size": failed_gib << 30, "stream": 0, "time_us": 5_000_000,
                    "frames": [{ "filename": "/app/train.py", "line": 99, "name": "main" }] });
                recorded["device_traces"][0].as_array_mut().unwrap().push(oom);
            }
        })
    };
    let (fitted, _, page) = with(mask("report", 1), 0);
    assert_eq!(fitted, "would-fit");
    assert!(page.contains("would fit on NVIDIA A10 (dry run): up to "), "{page}");
    assert_eq!(with(mask("branch", 1), 0).0, "would-fit", "twice this memory fits");
    let (failed, reason, _) = with(mask("report", 1), 9);
    assert_eq!(failed, "may-fit");
    assert!(
        reason.as_str().unwrap().contains("if nonzero at app/train.py:12 in main selects every element"),
        "{reason}"
    );
    assert_eq!(with(json!([]), 9).0, "would-not-fit");
    let early_and_late = [1, 6_000_000].map(|first_us| with(mask("report", first_us), 30).0);
    assert_eq!(early_and_late, ["may-fit", "would-not-fit"], "what precedes the mask alone is too much");
}

#[test]
fn an_error_after_a_read_names_the_option_that_changes_the_value() {
    let frames = json!([{ "filename": "/app/train.py", "line": 12, "name": "main" }]);
    let read = json!({ "operator": "_local_scalar_dense item allclose", "frames": frames, "value": "False" });
    let error =
        json!({ "kind": "exception", "error": "AssertionError", "message": "", "frames": frames, "read": read });
    let (_, reason, _) = verdict(&error, |_| ());
    let sentence = "AssertionError at app/train.py:12 in main after allclose read False at app/train.py:12 (a dry run \
                    has no values): --value app/train.py:12=True";
    assert_eq!(reason, sentence);
}
