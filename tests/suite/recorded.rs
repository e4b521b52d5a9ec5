//! What the recorder knew is used: release, capacity, memory outside, rank, the call of a backward pass, the ring.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{analyze, analyze_in, file, json_of, result_of, run, text};
use crate::support::{fixtures, made};

const OUTSIDE: &str = "fixtures/recorded/2.15.0-outside.pickle.gz";
const ANNOTATED: &str = "fixtures/recorded/2.15.0-annotated.pickle.gz";
const LOSSES: &str = "fixtures/recorded/2.15.0-losses_kept.pickle.gz";
const RANKS: &str = "fixtures/recorded/ranks";

/// A snapshot as JSON, of one block of 1 GiB that was there before the first of `entries` entries.
fn snapshot(entries: usize, recorded: Value) -> Value {
    let frames = made::frames(&[("/app/train.py", 7, "main")]);
    let actions = ["alloc", "free_requested", "free_completed"].iter().cycle().take(entries);
    let entry = |action: &&str| {
        let mut entry = made::entry(action, 0x6000_0000_0000, 512, 0, &frames);
        entry.as_object_mut().unwrap().remove("time_us");
        entry
    };
    let segment = made::segment(0, &[made::live(0x7000_0000_0000, 1 << 30, &json!([]))]);
    let mut snapshot = made::snapshot(&[segment], &[actions.map(entry).collect()]);
    snapshot["oomscope"] = recorded;
    snapshot
}

fn only(result: &Value) -> &Value {
    &result["snapshots"][0]
}

#[test]
fn the_release_is_exact_and_the_verdict_needs_no_capacity() {
    let result = analyze(&[OUTSIDE]);
    let one = only(&result);
    assert_eq!(one["torch_version"], "2.15.0");
    assert_eq!(one["recorder"]["reason"], "oom");
    assert_eq!(one["recorder"]["devices"][0]["total_bytes"], 8u64 << 30);
    let oom = &one["devices"][0]["ooms"][0];
    assert_eq!(oom["verdict"], "non-pytorch", "{oom}");
    assert_eq!(oom["confidence"], "certain");
    // 6000 MiB were held by another process.
    let outside = oom["causes"].as_array().unwrap().iter().find(|cause| cause["kind"] == "non-pytorch");
    assert_eq!(outside.map(|cause| &cause["bytes"]), Some(&json!(6000u64 << 20)), "{oom}");
}

#[test]
fn a_capacity_that_is_given_outranks_the_recorded_one() {
    let result = analyze(&["--capacity", "2200MiB", OUTSIDE]);
    assert_eq!(only(&result)["devices"][0]["ooms"][0]["verdict"], "capacity");
    let result = analyze(&["--torch-version", "2.14", OUTSIDE]);
    assert_eq!(only(&result)["torch_version"], "2.14");
}

#[test]
fn without_what_was_recorded_the_same_is_not_known() {
    let directory = TempDir::new().unwrap();
    let mut bare = fs::read(OUTSIDE)
        .map(|bytes| {
            let mut inflated = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut inflated).unwrap();
            inflated
        })
        .unwrap();
    let at = bare.windows(8).position(|word| word == b"oomscope").unwrap();
    bare[at..at + 8].copy_from_slice(b"oomscopf");
    let result = analyze(&[&file(&directory, "bare.pickle", &bare)]);
    let one = only(&result);
    assert!(one.get("recorder").is_none());
    assert_ne!(one["torch_version"], "2.15.0");
    assert_eq!(one["devices"][0]["ooms"][0]["verdict"], "capacity");
}

#[test]
fn ranks_are_called_by_their_numbers() {
    let result = analyze(&[RANKS]);
    let summary = result["ranks"]["summary"].as_str().unwrap();
    assert!(summary.starts_with("1 of 2 ran out of memory: rank 1 at jobs/ranks.py:16"), "{summary}");
    assert_eq!(result["ranks"]["rows"][1]["rank"], "0");
    // Two files of one process are one rank.
    let result = analyze(&[RANKS, RANKS]);
    let summary = result["ranks"]["summary"].as_str().unwrap();
    assert!(summary.starts_with("1 of 2 ran out of memory: rank 1 at"), "{summary}");
}

#[test]
fn the_ring_is_as_large_as_recorded() {
    let directory = TempDir::new().unwrap();
    let lost = |entries: usize, recorded: Value| {
        let text = snapshot(entries, recorded).to_string();
        let result = analyze(&[&file(&directory, "ring.json", text.as_bytes())]);
        result.to_string().contains("history-lost")
    };
    assert!(lost(3000, json!(null)), "a round number looks like a full ring");
    assert!(!lost(3000, json!({ "max_entries": 1_000_000 })));
    assert!(lost(3003, json!({ "max_entries": 3003 })));
    assert!(!lost(3003, json!(null)));
}

#[test]
fn settings_of_an_old_release_are_those_of_the_environment() {
    let directory = TempDir::new().unwrap();
    let recorded = json!({ "torch": "2.1.2+cu121", "alloc_conf": "max_split_size_mb:64", "host": "node1" });
    let text = snapshot(3, recorded).to_string();
    let result = analyze(&[&file(&directory, "old.json", text.as_bytes())]);
    let one = only(&result);
    assert_eq!(one["torch_version"], "2.1.2");
    assert_eq!(one["settings_string"], "max_split_size_mb:64");
    assert_eq!(one["recorder"]["host"], "node1");
}

#[test]
fn nonsense_under_the_key_is_passed_over() {
    let directory = TempDir::new().unwrap();
    for nonsense in [
        json!(null),
        json!(7),
        json!("x"),
        json!([]),
        json!([1, 2]),
        json!({}),
        json!({ "torch": 2, "devices": 3, "threads": "x", "oom": [], "rank": {}, "max_entries": "many", "pid": -1 }),
        json!({ "torch": "2.999.0", "devices": [{}, 1, null, { "total_bytes": -5 }], "oom": { "device": 1u64 << 40 } }),
        json!({ "torch": "x".repeat(5000), "threads": [{ "frames": [{ "line": 1 }] }, { "frames": 7 }] }),
    ] {
        let text = snapshot(3, nonsense.clone()).to_string();
        let ran = run(&[&file(&directory, "odd.json", text.as_bytes())]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
}

#[test]
fn annotations_of_live_memory_are_shown() {
    let analysis = analyze(&[ANNOTATED]);
    let annotated = &analysis["snapshots"][0]["devices"][0]["annotated"];
    let rows: Vec<_> = annotated["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (row["name"].as_str().unwrap(), row["bytes"].as_u64().unwrap() >> 20, row["blocks"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(rows, [("<b>weights</b>", 16, 1), ("a batch", 12, 3), ("the first batch", 4, 1)]);
    // The batches, in a list of the program, are no parameters.
    let held = &analysis["snapshots"][0]["devices"][0]["ooms"][0]["held"]["by_category"];
    let of =
        |word: &str| held.as_array().unwrap().iter().find(|row| row["category"] == word).unwrap()["bytes"].as_u64();
    assert_eq!((of("parameters").unwrap() >> 20, of("other").unwrap() >> 20), (16, 12), "{held}");
    let page = result_of(&["analyze", "--full", "--top", "2", ANNOTATED]);
    assert!(page.contains("Allocated memory that the program annotated") && page.contains("everything else"), "{page}");
    assert!(analyze(&[LOSSES])["snapshots"][0]["devices"][0].get("annotated").is_none());
}

#[test]
fn texts_of_the_program_select_categories_of_the_reader() {
    let directory = TempDir::new().unwrap();
    let rules = "[[category]]\nname = 'batches'\nannotation = '*batch'\n[[category]]\nname = 'prompts'\nannotation = 'prefill*'\n";
    file(&directory, "oomscope.toml", rules.as_bytes());
    let by_rule = |snapshot: &str, held: &str| -> Vec<(String, u64)> {
        let path = text(&Path::new(env!("CARGO_MANIFEST_DIR")).join(snapshot));
        let analysis: Value =
            crate::support::program::read_with_details(&analyze_in(directory.path(), &["--format", "json", &path]));
        let rows = analysis["snapshots"][0]["devices"][0].pointer(held).unwrap()["by_rule"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| (row["name"].as_str().unwrap_or("none").to_owned(), row["bytes"].as_u64().unwrap()))
            .collect()
    };
    let mib = |(name, bytes): (String, u64)| (name, bytes >> 20);
    let at_failure: Vec<_> = by_rule(ANNOTATED, "/ooms/0/held").into_iter().map(mib).collect();
    assert!(at_failure.contains(&("batches".to_owned(), 12)), "{at_failure:?}");
    let entry = |action: &str, number: u64, size: u64, text: &str| {
        json!({"action": action, "addr": number << 21, "size": size,
        "stream": 0, "time_us": 100 + number, "frames": [], "user_metadata": text})
    };
    let entries = [
        entry("segment_alloc", 1, 2 << 20, ""),
        entry("alloc", 1, 2 << 20, "prefill of 7"),
        entry("segment_alloc", 2, 2 << 20, ""),
        entry("alloc", 2, 2 << 20, "decode"),
    ];
    let traced = json!({"segments": [], "device_traces": [entries]}).to_string();
    let traced = file(&directory, "traced.json", traced.as_bytes());
    assert_eq!(by_rule(&traced, "/at_peak"), [("none".to_owned(), 2 << 20), ("prompts".to_owned(), 2 << 20)]);
}

/// The model in half precision, as `whatif --program` shows it for the recording with another name for float32.
fn half_precision(dtype: &[u8; 7]) -> Option<String> {
    let mut bytes = fixtures::pickle("recorded/2.15.0-losses_kept");
    let places: Vec<usize> =
        bytes.windows(7).enumerate().filter(|(_, text)| *text == b"float32").map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + 7].copy_from_slice(dtype);
    }
    let directory = tempfile::tempdir().unwrap();
    let answer = json_of(&["whatif", "--program", &file(&directory, "losses.pickle", &bytes)]);
    let rows = answer["program"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["change"] == "half-precision")?;
    Some(row["what"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn only_what_is_in_full_precision_is_halved() {
    assert!(half_precision(b"float32").unwrap().contains("where it is float32"));
    assert_eq!(half_precision(b"float16"), None);
}
