//! `oomscope timeline` as it is typed: its forms, its window, its page, its refusals.

use crate::support::{fixtures, program};

use crate::support::program::{refusal, result_of};
use oomscope::analysis::timeline::{TimelineOptions, timeline};
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::output::document::{Style, terminal};
use oomscope::output::report;
use oomscope::study::Window;
use serde_json::{Value, json};

const FAILED: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

#[test]
fn scripts_get_the_same_bytes_each_time() {
    let text = result_of(&["timeline", "--format", "json", FAILED]);
    assert_eq!(text, result_of(&["timeline", "--format", "json", FAILED]));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], "oomscope/timeline/1");
}

#[test]
fn a_part_of_the_trace_is_shown_alone() {
    let json = |args: &[&str]| -> Value {
        let all = [&["timeline", "--format", "json"], args, &[FAILED]].concat();
        serde_json::from_str(&result_of(&all)).unwrap()
    };
    for (args, first, events) in [
        (&["--from", "100", "--to", "200"][..], 100, 100),
        (&["--from", "end-10"], 53_069, 10),
        (&["--from", "failure-20"], 53_058, 21),
        (&["--from", "failure-20", "--to", "failure+1"], 53_058, 21),
        (&["--from", "53000"], 53_000, 79),
    ] {
        let device = &json(args)["devices"][0];
        assert_eq!((&device["first_event"], &device["events"]), (&json!(first), &json!(events)));
        assert_eq!(device["trace_events"], 53_079);
    }
    let devices = |args: &[&str]| {
        let all = [&["timeline", "--format", "json"], args].concat();
        let report: Value = serde_json::from_str(&result_of(&all)).unwrap();
        let devices = report["devices"].as_array().unwrap().iter();
        devices.map(|d| d["device"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let two = "fixtures/2.15.0-two_devices.pickle.gz";
    assert_eq!((devices(&[two]), devices(&["--device", "1", two])), (vec![0, 1], vec![1]));
}

#[test]
fn a_page_fits_its_width_and_goes_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = program::text(&directory.path().join("page.txt"));
    assert_eq!(result_of(&["timeline", "-o", &path, FAILED]), "");
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, result_of(&["timeline", FAILED]));
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    let full = result_of(&["timeline", "--full", FAILED]);
    for wanted in ["stranded", "failed", " 5.70 GiB    30,949"] {
        assert!(full.contains(wanted), "{wanted}: {full}");
    }
}

#[test]
fn both_pages_fit_a_narrow_terminal() {
    let style = Style { width: 80, unicode: true, colour: false };
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-fuzz_streams-oom-lag"] {
        let snapshot = fixtures::snapshot(name);
        let options = TimelineOptions { device: None, window: Window::All, buckets: 512 };
        let whole = timeline(&snapshot, "a", options);
        let snapshots = vec![analyze(&snapshot, "a", 0, Options { top: 10, ..Options::default() })];
        let report = AnalyzeReport::new(snapshots, Vec::new(), 10);
        for page in [report::analyze(&report), report::timeline(&whole)] {
            let page = terminal(&page, style);
            assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        }
    }
}

#[test]
fn an_impossible_timeline_is_refused_in_one_sentence() {
    let untraced = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
    assert!(refusal(&["timeline", untraced]).contains("no trace entry, so"));
    assert!(refusal(&["timeline", "--device", "7", FAILED]).contains("no trace entry of GPU 7"));
    assert!(refusal(&["timeline", "--from", "99999999", FAILED]).contains("in the selected part of the trace"));
    for args in [&["timeline", "--format", "sarif", FAILED][..], &["timeline", "--from", "end", FAILED]] {
        assert_eq!(program::run(args).code, 2, "{args:?}");
    }
}
