//! `analyze --at`: the memory at a moment, held against what PyTorch said at that moment
//! (`tests/oracle/moments.py`), and against the snapshot where the moment is its own. Slow: many runs of the program.

use crate::support::fixtures;
use crate::support::program::{analyze, refusal};
use oomscope::snapshot::{BlockState, Segment};
use oomscope::study::TracePosition;
use serde_json::{Value, json};

fn path(file: &str) -> String {
    format!("fixtures/{file}.pickle.gz")
}

fn analyzed(file: &str, at: &str) -> Value {
    analyze(&["--top", "1000", "--at", at, &path(file)])
}

#[test]
fn figures_and_segments_are_those_of_the_moment() {
    for run in ["native", "expandable"] {
        let file = fixtures::directory().join(format!("moments/2.15.0-{run}.moments.json"));
        let moments: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let moments = moments.as_array().unwrap();
        assert_eq!(moments.len(), 6);
        for truth in moments {
            let entry = &truth["entry"];
            let report = analyzed(&format!("moments/2.15.0-{run}"), &entry.to_string());
            let device = &report["snapshots"][0]["devices"][0];
            assert_eq!(device["moment"], json!({ "at": "entry", "event": entry }));
            assert_eq!(device["at_moment"]["event"], *entry);
            assert_eq!(device["at_moment"]["allocated_bytes"], truth["allocated_bytes"]);
            for figure in ["allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"] {
                assert_eq!(device[figure], truth[figure], "{run} {figure} at {entry}");
            }
            assert_eq!(
                device["fragmentation"]["inactive_split_bytes"], truth["inactive_split_bytes"],
                "{run} at {entry}"
            );
            let replayed = replayed_segments(&format!("moments/2.15.0-{run}"), entry.as_u64().unwrap());
            assert_eq!(replayed, segments_true(truth), "{run} at {entry}");
            let held: u64 = device["top_lines"].as_array().unwrap().iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
            assert_eq!(json!(held), truth["allocated_bytes"]);
        }
    }
}

/// Address, bytes, stream, pool, blocks, bytes allocated and free of each segment.
type Row = (u64, u64, u64, Value, u64, u64, u64);

fn replayed_segments(file: &str, entry: u64) -> Vec<Row> {
    let study = fixtures::study(file);
    let memory = study.devices().next().unwrap().memory_at(TracePosition::Entry { event: entry });
    let layout = memory.layout.as_ref().unwrap();
    let row = |segment: &Segment| {
        let blocks = segment.blocks_in(&layout.blocks);
        let bytes = |state| blocks.iter().filter(|block| block.state == state).map(|block| block.size).sum();
        let pool = json!(study.snapshot().pools.get(segment.pool));
        let (allocated, free) = (bytes(BlockState::ActiveAllocated), bytes(BlockState::Inactive));
        (segment.address, segment.total_size, segment.stream, pool, blocks.len() as u64, allocated, free)
    };
    layout.segments.iter().map(row).collect()
}

fn segments_true(truth: &Value) -> Vec<Row> {
    let row = |s: &Value| {
        let blocks = s[4].as_array().unwrap();
        let bytes = |state: &str| {
            let of_state = blocks.iter().filter(|block| block[2] == state);
            of_state.map(|block| block[0].as_u64().unwrap()).sum()
        };
        let of = |index: usize| s[index].as_u64().unwrap();
        let (allocated, free) = (bytes("active_allocated"), bytes("inactive"));
        (of(0), of(1), of(2), s[3].clone(), blocks.len() as u64, allocated, free)
    };
    let mut rows: Vec<Row> = truth["segments"].as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(|row| row.0);
    rows
}

#[test]
fn the_last_entry_is_the_snapshot() {
    for file in ["2.15.0-oom_varlen-at-oom", "2.5.1-graphs", "2.15.0-gpt_varlen-late", "2.1.2-holes-at-oom"] {
        let plain = analyze(&["--top", "1000", &path(file)]);
        let snapshot = &plain["snapshots"][0]["devices"][0];
        let entries = plain["snapshots"][0]["events"].as_u64().unwrap();
        let report = analyzed(file, &(entries - 1).to_string());
        let mut last = report["snapshots"][0]["devices"][0].clone();
        let keys = last.as_object_mut().unwrap();
        keys.insert("moment".to_owned(), json!({ "at": "snapshot" }));
        keys.remove("at_moment").unwrap();
        assert_eq!(last, *snapshot, "{file}");
    }
}

#[test]
fn peak_and_failure_are_the_entries_they_name() {
    let file = "2.15.0-oom_varlen-at-oom";
    let peak = analyzed(file, "peak");
    let device = &peak["snapshots"][0]["devices"][0];
    assert_eq!(device["allocated_bytes"], device["peak"]["allocated_bytes"]);
    assert_eq!(device["moment"]["event"], device["peak"]["allocated_event"]);
    assert_eq!(device["at_moment"], device["at_peak"]);
    let failure = analyzed(file, "failure");
    let device = &failure["snapshots"][0]["devices"][0];
    let failed = device["ooms"].as_array().unwrap().last().unwrap();
    assert_eq!(device["moment"]["event"], failed["event"]);
    assert_eq!(device["allocated_bytes"], failed["allocated_bytes"]);
    assert_eq!(device["reserved_bytes"], failed["reserved_bytes"]);
}

#[test]
fn a_moment_that_no_trace_has_is_refused() {
    let holes = path("2.15.0-gpt_varlen-late");
    let untraced = path("2.15.0-gpt_varlen-no-history");
    for (at, path, why) in [
        ("failure", &holes, "--at failure: no request failed"),
        ("99999999", &holes, "--at 99999999: no trace has an entry 99999999"),
        ("peak", &untraced, "--at peak: no history was recorded"),
    ] {
        for command in ["analyze", "report"] {
            assert!(refusal(&[command, "--at", at, path]).contains(why), "{command} {at}");
        }
    }
    let why = "no memory and no trace of GPU 9";
    for command in ["analyze", "report"] {
        assert!(refusal(&[command, "--device", "9", &holes]).contains(why), "{command}");
    }
}

#[test]
fn a_device_without_the_moment_is_shown_at_the_snapshot_with_a_warning() {
    let (with, without) = (path("2.15.0-holes-at-oom"), path("2.15.0-holes"));
    let report = analyze(&["--at", "failure", &with, &without]);
    let of = |index: usize| &report["snapshots"][index];
    assert_eq!(of(0)["devices"][0]["moment"]["at"], "entry");
    assert_eq!(of(1)["devices"][0]["moment"]["at"], "snapshot");
    let codes = of(1)["warnings"].as_array().unwrap().iter().map(|warning| &warning["code"]);
    assert!(codes.clone().any(|code| code == "no-moment"));
}

/// The brief report and its summary are of one moment, whichever it is.
#[test]
fn the_figures_of_a_brief_report_are_those_of_one_moment() {
    let mut moments = std::collections::BTreeSet::new();
    // A tenth of the fixtures, and one without a history: each is read seven times.
    let names = fixtures::names().into_iter().step_by(10).chain(["2.15.0-gpt_varlen-no-history".to_owned()]);
    for name in names {
        for at in [&[][..], &["--at", "peak"], &["--at", "end"], &["--at", "9"]] {
            let file = path(&name);
            let args: Vec<&str> =
                ["analyze", "--format", "json", "--brief"].iter().chain(at).copied().chain([&*file]).collect();
            let ran = crate::support::program::run(&args);
            if ran.code != 0 {
                continue; // no such moment
            }
            let brief: Value = serde_json::from_str(&ran.out).unwrap();
            let bytes = |key: &str| brief[key].as_u64().unwrap();
            assert!(bytes("allocated_bytes") <= bytes("reserved_bytes"), "{name} {at:?}");
            let held = brief["top_lines"].as_array().unwrap().iter().map(|line| line["bytes"].as_u64().unwrap());
            // Memory that sleeps, or that an unfinished request made, is in one of both only.
            assert!(held.sum::<u64>() <= bytes("allocated_bytes").max(bytes("peak_allocated_bytes")), "{name} {at:?}");
            let share = brief["summary"]["who"].as_str().map(|who| who.rsplit_once('(').unwrap().1);
            let share = share.map_or(0.0, |share| share.trim_matches(['%', ')', '<']).parse::<f64>().unwrap());
            assert!(share <= 100.0, "{name} {at:?}: {share}");
            let moment = brief["at"].as_str().unwrap().to_owned();
            if moment == "entry" {
                let whole = &analyze(&[at, &[&*file]].concat())["snapshots"][0]["devices"][0];
                if whole["device"] == brief["device"] {
                    let figures = ["allocated_bytes", "reserved_bytes"];
                    assert_eq!(figures.map(|key| &whole[key]), figures.map(|key| &brief[key]), "{name} {at:?}");
                    assert_eq!(whole["moment"]["event"], brief["event"]);
                }
            }
            moments.insert(moment);
        }
    }
    let seen: Vec<&str> = moments.iter().map(String::as_str).collect();
    assert_eq!(seen, ["entry", "failure", "peak", "snapshot"]);
}

#[test]
fn the_summary_is_the_answer_to_the_question() {
    let answer = |args: &[&str]| analyze(args)["summary"]["answer"].as_str().unwrap().to_owned();
    let failed = path("2.15.0-oom_varlen-at-oom");
    assert!(answer(&["--at", "1000", &failed]).contains("at entry 1,000"));
    assert!(answer(&["--at", "failure", &failed]).starts_with("out of memory"));
    assert!(answer(&["--request", "2GiB", &failed]).starts_with("2 GiB more on GPU 0 would fail: "));
    let fits = path("where/2.15.0-adam");
    assert!(answer(&["--request", "2GiB", &fits]).contains("is not known"), "the device's size is unknown");
    assert!(answer(&["--request", "2GiB", "--capacity", "40GiB", &fits]).contains("would be served"));
    assert!(answer(&["--request", "2GiB", "--capacity", "1GiB", &fits]).contains("would fail"));
    let unknown = analyze(&["--request", "2GiB", &fits]);
    assert_eq!(unknown["snapshots"][0]["devices"][0]["request"]["verdict"], "unknown");
    assert_eq!(unknown["snapshots"][0]["devices"][0]["moment"], json!({ "at": "snapshot" }));
}
