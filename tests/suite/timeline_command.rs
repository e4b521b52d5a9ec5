//! `oomscope timeline` as it is typed: its forms, its window, its page, its refusals.

use crate::support::program::{json_of, refusal, result_of, run, text};
use serde_json::json;

const FAILED: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

#[test]
fn a_part_of_the_trace_is_shown_alone() {
    let json = |args: &[&str]| json_of(&[&["timeline"], args].concat());
    for (args, first, events) in [
        (&["--from", "100", "--to", "200"][..], 100, 100),
        (&["--from", "end-10"], 53_069, 10),
        (&["--from", "failure-20"], 53_058, 21),
        (&["--from", "failure-20", "--to", "failure+1"], 53_058, 21),
        (&["--from", "53000"], 53_000, 79),
    ] {
        let device = &json(&[args, &[FAILED]].concat())["devices"][0];
        assert_eq!((&device["first_event"], &device["events"]), (&json!(first), &json!(events)));
        assert_eq!(device["trace_events"], 53_079);
    }
    let devices = |args: &[&str]| {
        let report = json(args);
        let devices = report["devices"].as_array().unwrap().iter();
        devices.map(|d| d["device"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let two = "fixtures/2.15.0-two_devices.pickle.gz";
    assert_eq!((devices(&[two]), devices(&["--device", "1", two])), (vec![0, 1], vec![1]));
}

#[test]
fn a_page_goes_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = text(&directory.path().join("page.txt"));
    assert_eq!(result_of(&["timeline", "-o", &path, FAILED]), "");
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, result_of(&["timeline", FAILED]));
}

#[test]
fn an_impossible_timeline_is_refused_in_one_sentence() {
    let untraced = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
    assert!(refusal(&["timeline", untraced]).contains("no trace entry, so"));
    assert!(refusal(&["timeline", "--device", "7", FAILED]).contains("no trace entry of GPU 7"));
    assert!(refusal(&["timeline", "--from", "99999999", FAILED]).contains("in the selected part of the trace"));
    for args in [&["timeline", "--format", "sarif", FAILED][..], &["timeline", "--from", "end", FAILED]] {
        assert_eq!(run(args).code, 2, "{args:?}");
    }
}
