//! What scripts rely on in `oomscope replay`: exit codes, refusals, the keys of the JSON, the snapshot it
//! writes.

use crate::support::fixtures;
use std::fs;

use crate::support::program::{file, json_of, oomscope, refusal, result_of, run, text};
use serde_json::{Value, json};
use tempfile::TempDir;

const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const STREAMS: &str = "fixtures/2.15.0-streams-lag.pickle.gz";
const TWO_DEVICES: &str = "fixtures/2.15.0-two_devices.pickle.gz";
const OLDEST: &str = "fixtures/2.1.2-fuzz-max_split-oom.pickle.gz";

fn replay(args: &[&str]) -> Value {
    json_of(&[&["replay"], args].concat())
}

/// A recording with one allocation missing.
fn diverging(directory: &TempDir) -> String {
    let segment = json!({"device": 0, "address": 1u64 << 40, "total_size": 2 << 20, "stream": 0,
        "segment_type": "small", "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [
            {"address": 1u64 << 40, "size": 512, "requested_size": 9, "state": "inactive"},
            {"address": (1u64 << 40) + 512, "size": 512, "requested_size": 9,
                "state": "active_allocated"},
            {"address": (1u64 << 40) + 1024, "size": (2 << 20) - 1024, "requested_size": 0,
                "state": "inactive"}]});
    let entry = |action: &str, addr: u64, size: u64| json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 5});
    let trace = [entry("segment_alloc", 1 << 40, 2 << 20), entry("alloc", (1 << 40) + 512, 9)];
    let snapshot = json!({"segments": [segment], "device_traces": [trace]});
    file(directory, "parted.json", snapshot.to_string().as_bytes())
}

#[test]
fn the_exit_code_shows_whether_the_model_agrees() {
    let directory = TempDir::new().unwrap();
    for path in [HOLES, OOM, STREAMS, TWO_DEVICES, OLDEST] {
        assert!(result_of(&["replay", path]).starts_with("reproduced: all "));
    }
    let parted = diverging(&directory);
    for format in ["human", "json"] {
        let ran = run(&["replay", "--format", format, &parted]);
        assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{}", ran.out);
    }
    let page = run(&["replay", &parted]).out;
    assert!(page.contains("the model diverges from the recording"), "{page}");
    assert!(page.contains(" 0 of 2 ") || page.contains(" 1 of 2 "), "{page}");
    let what_if = run(&["replay", "--set", "expandable_segments:True", &parted]);
    assert_eq!(what_if.code, 0, "a what-if is no gate");
    let (before, _) = what_if.out.split_once("peak reserved").unwrap();
    assert!(before.contains("note: GPU 0: the model reproduces only"), "but says so first: {}", what_if.out);
}

#[test]
fn nothing_is_vouched_for_that_was_not_seen() {
    let untraced = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
    for args in [&["replay"][..], &["replay", "--set", "default"], &["whatif"]] {
        let said = refusal(&[args, &[untraced]].concat());
        assert!(said.contains("no trace to replay"), "{args:?}: {said}");
    }
}

#[test]
fn settings_are_checked_in_pytorchs_words() {
    for (set, words) in [
        ("expandable_segment:True", "did you mean expandable_segments?"),
        ("max_split_size_mb:3", "max_split_size_mb too small, must be >= 20"),
        ("nonsense", "Unrecognized key 'nonsense'"),
    ] {
        let err = refusal(&["replay", "--set", set, HOLES]);
        assert!(err.contains(words) && err.contains(&format!("--set {set}")), "{err}");
    }
    // The options are those of the release.
    let err = refusal(&["replay", "--torch-version", "2.9", "--set", "expandable:True", HOLES]);
    assert!(err.contains("Unrecognized key 'expandable'"), "{err}");
}

#[test]
fn recorded_settings_that_cannot_be_read_are_not_blamed_on_what_is_typed() {
    let directory = TempDir::new().unwrap();
    let odd = file(
        &directory,
        "odd.json",
        br#"{"segments": [], "device_traces": [[{"action": "segment_alloc", "addr": 2097152, "size": 2097152,
            "stream": 0, "frames": []}]], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:1"}}"#,
    );
    for command in ["replay", "whatif"] {
        let err = refusal(&[command, "--set", "expandable_segments:True", &odd]);
        assert!(err.contains("with the recorded settings \"max_split_size_mb:1\": "), "{err}");
    }
}

#[test]
fn options_not_named_stay_as_recorded_and_several_add_up() {
    let recorded = "fixtures/2.9.1-gpt_varlen-gc.pickle.gz";
    let string = |args: &[&str]| replay(args)["settings_string"].as_str().unwrap().to_owned();
    assert_eq!(string(&[recorded]), "garbage_collection_threshold:0.6");
    let both = string(&["--set", "max_split_size_mb:64", recorded]);
    assert!(both.contains("garbage_collection_threshold:0.6"), "{both}");
    assert!(both.contains("max_split_size_mb:64"), "{both}");
    let split = ["--set", "max_split_size_mb:64", "--set", "expandable_segments:True"];
    let joined = ["--set", "max_split_size_mb:64,expandable_segments:True"];
    assert_eq!(replay(&[&split[..], &[HOLES]].concat()), replay(&[&joined[..], &[HOLES]].concat()));
}

#[test]
fn a_release_has_many_forms_and_an_impossible_one_is_a_what_if() {
    for form in ["2.15", "2.15.0", "2.15.0+cu132"] {
        let report = replay(&["--torch-version", form, STREAMS]);
        assert_eq!((&report["mode"], &report["torch_version"]), (&json!("verify"), &json!("2.15")));
    }
    let report = replay(&["--torch-version", "2.9", STREAMS]);
    assert_eq!((&report["mode"], &report["torch_version"]), (&json!("what-if"), &json!("2.9")));
    for form in ["2.0", "2.16", "3.1", "1.13", "2", "two", ""] {
        let ran = run(&["replay", "--torch-version", form, STREAMS]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{form}");
        assert!(ran.err.contains("2.1 to 2.15"), "{}", ran.err);
    }
}

#[test]
fn another_device_fails_or_serves_the_requests() {
    let report = replay(&["--capacity", "1GiB", OOM]);
    let device = &report["devices"][0];
    assert_eq!(report["mode"], "what-if");
    assert_eq!((&device["ooms"], &device["recorded"]["ooms"][0]), (&json!([]), &device["avoided_ooms"][0]));
    assert_eq!(device["assumed"]["capacity_bytes"], 1 << 30);
    assert_eq!((&device["exact"], &device["events"]["matched"]), (&Value::Null, &Value::Null));
    assert_eq!(device["statistics"]["reserved_bytes.all.peak"], device["peak_reserved_bytes"]);
    let report = replay(&["--capacity", "100MiB", HOLES]);
    assert!(!report["devices"][0]["ooms"].as_array().unwrap().is_empty());
    assert!(report["devices"][0]["peak_reserved_bytes"].as_u64() <= Some(100 << 20));
    assert_eq!(run(&["replay", "--capacity", "lots", HOLES]).code, 2);
    for command in ["analyze", "replay", "whatif"] {
        let ran = run(&[command, "--capacity", "80", HOLES]);
        assert_eq!((ran.code, ran.err.contains("give a unit")), (2, true), "{command}: {}", ran.err);
    }
}

#[test]
fn one_device_of_several_and_none_that_is_not_there() {
    let whole = replay(&[TWO_DEVICES]);
    assert_eq!(whole["devices"].as_array().unwrap().len(), 2);
    for number in ["0", "1"] {
        let one = replay(&["--device", number, TWO_DEVICES]);
        let index: usize = number.parse().unwrap();
        assert_eq!(one["devices"], json!([whole["devices"][index]]));
    }
    assert!(refusal(&["replay", "--device", "2", TWO_DEVICES]).contains("GPU 2"));
}

#[test]
fn the_result_goes_to_a_file_and_never_over_the_input() {
    let directory = TempDir::new().unwrap();
    let target = text(&directory.path().join("result.json"));
    let expected = result_of(&["replay", "--format", "json", HOLES]);
    assert_eq!(result_of(&["replay", "--format", "json", "-o", &target, HOLES]), "");
    assert_eq!(fs::read_to_string(&target).unwrap(), expected);

    let bytes = fixtures::pickle("2.15.0-holes");
    let own = file(&directory, "own.pickle", &bytes);
    for flag in ["-o", "--emit-snapshot"] {
        assert!(refusal(&["replay", flag, &own, &own]).contains("overwrite"));
    }
    assert_eq!(fs::read(&own).unwrap(), bytes, "as it was");
    assert!(refusal(&["replay", "-o", &target, "--emit-snapshot", &target, HOLES]).contains("two"));
    if cfg!(unix) {
        result_of(&["replay", "-o", "/dev/null", "--emit-snapshot", "/dev/null", HOLES]);
    }
}

#[test]
fn standard_input_is_a_snapshot_like_any() {
    let named = replay(&[HOLES]);
    let bytes = fixtures::pickle("2.15.0-holes");
    let output = oomscope(&["replay", "--format", "json", "-"]).write_stdin(bytes).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let mut piped: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(piped["path"], "-");
    piped["path"] = named["path"].clone();
    // What was piped in cannot be read again.
    assert_eq!(piped["summary"]["copy"], Value::Null);
    piped["summary"]["copy"] = named["summary"]["copy"].clone();
    assert_eq!(piped, named);
}

/// What the model writes is a recording that the model reproduces, with the same figures.
#[test]
fn an_emitted_snapshot_replays_exactly() {
    let directory = TempDir::new().unwrap();
    let target = text(&directory.path().join("model.pickle"));
    let figures = |report: &Value, at: usize| {
        let device = &report["devices"][at];
        ["peak_reserved_bytes", "peak_allocated_bytes", "device_allocs", "device_frees"].map(|key| device[key].clone())
    };
    let what_if = ["--set", "expandable_segments:True", "--capacity", "6GiB"];
    for (path, change) in [
        (HOLES, &[][..]),
        (OOM, &[]),
        (STREAMS, &[]),
        (TWO_DEVICES, &[]),
        ("fixtures/2.1.2-holes-at-oom.pickle.gz", &[]),
        ("fixtures/2.15.0-graphs-expandable.pickle.gz", &[]),
        ("fixtures/2.15.0-fuzz_streams-oom-lag.pickle.gz", &[]),
        (HOLES, &what_if[..]),
        (TWO_DEVICES, &["--capacity", "1GiB"]),
    ] {
        let own = replay(&[change, &["--emit-snapshot", &target, path]].concat());
        let again = replay(&[&target]);
        for at in 0..own["devices"].as_array().unwrap().len() {
            let (one, other) = (&own["devices"][at], &again["devices"][at]);
            assert_eq!(other["exact"], true, "{path} {change:?} {}", other["first_divergence"]);
            assert_eq!(other["end_state_exact"], true, "{path} {change:?}");
            assert_eq!(one["events"]["predicted"], other["events"]["recorded"], "{path}");
            assert_eq!(figures(&own, at), figures(&again, at), "{path} {change:?}");
        }
    }
}
