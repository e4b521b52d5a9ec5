//! `oomscope plan`: from recordings, and from the dry runs of a directory.

use serde_json::{Value, json};

use crate::support::program::{json_of, refusal, result_of, run};

fn dense(size: u64) -> String {
    format!("{size}=fixtures/sizes/2.15.0-dense-{size}.pickle.gz")
}

fn plan(more: &[&str]) -> Value {
    let files = [dense(4), dense(8), dense(13)];
    let files = files.iter().map(String::as_str);
    let arguments: Vec<&str> = ["plan"].into_iter().chain(files).chain(more.iter().copied()).collect();
    json_of(&arguments)
}

fn cell<'v>(gpu: &'v Value, change: &str) -> &'v Value {
    let cells = gpu["cells"].as_array().unwrap();
    cells.iter().find(|cell| cell["change"] == change).unwrap()
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn the_sizes_are_those_of_fit() {
    let report = plan(&["--gpus", "h100,t4"]);
    let [t4, h100] = report["gpus"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((&t4["gpu"], &h100["gpu"]), (&json!("t4"), &json!("h100")));
    for gpu in [t4, h100] {
        for (change, set) in [("as-is", None), ("expandable-segments", Some("expandable_segments:True"))] {
            let files = [dense(4), dense(8), dense(13)];
            let capacity = gpu["usable_bytes"].to_string();
            let set = set.iter().flat_map(|settings| ["--set", settings]);
            let arguments = ["fit", "--capacity", &capacity];
            let arguments = arguments.into_iter().chain(files.iter().map(String::as_str)).chain(set);
            let fit = json_of(&arguments.collect::<Vec<_>>());
            let cell = cell(gpu, change);
            assert_eq!(cell["size"], fit["devices"][0]["largest"]["size"], "{gpu}");
            let headroom = &fit["devices"][0]["largest"]["unreserved_bytes"];
            assert_eq!(&cell["unreserved_bytes"], headroom, "{gpu}");
            assert!(cell["fails"]["requested_bytes"].as_u64() > headroom.as_u64(), "{gpu}: the next size fails");
        }
    }
    let text = result_of(&["plan", &dense(4), &dense(8), &dense(13), "--gpus", "t4"]);
    assert!(text.contains("the largest size as it is: about 1,36"), "far from the recorded sizes: {text}");
    let size = |change| cell(t4, change)["size"].as_u64().unwrap();
    assert!(size("checkpoint") > size("as-is") * 3 / 2);
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn the_smallest_gpu_for_a_size_is_named() {
    let answer = |size: &str| {
        let summary = plan(&["--gpus", "t4,l4,h100", "--for-size", size])["summary"].take();
        let text = |key: &str| summary[key].as_str().unwrap_or_default().to_owned();
        (text("answer"), text("action"))
    };
    assert_eq!(answer("8").0, "the smallest GPU for size 8 is t4: it should fit as it is, in 14.5 GiB");
    let (answer_2000, action) = answer("2000");
    assert!(answer_2000.starts_with("the smallest GPU for size 2,000 is l4"), "{answer_2000}");
    assert!(action.starts_with("size 2,000 should fit on t4 with activation checkpointing of "), "{action}");
    assert_eq!(answer("1000000").0, "size 1,000,000 fits none of these GPUs as it is");
}

/// `plan.json` as a plan that was interrupted leaves it, with no run left: `runs` are (GPU, size, whether it fits).
fn plan_of_runs(runs: &[(&str, u64, bool)]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let learned = [4, 8].map(|size| ("h100", size, true));
    let filler = (0..13 - runs.len() as u64).map(|index| ("a100", 100_000 + index, false));
    let all = learned.into_iter().chain(runs.iter().copied()).chain(filler);
    let root = env!("CARGO_MANIFEST_DIR");
    let runs = all.map(|(gpu, size, fits)| {
        let snapshot = if size == 4 { 4 } else { 8 };
        json!({
            "gpu": gpu, "expandable_segments": false, "size": size, "fits": fits, "is_certain": true,
            "reserved_bytes": if fits { 14u64 << 30 } else { 0 },
            "snapshot": format!("{root}/fixtures/sizes/2.15.0-dense-{snapshot}.pickle.gz"),
        })
    });
    let state = json!({ "command": ["train", "{N}"], "settings": "", "runs": runs.collect::<Vec<_>>() });
    std::fs::write(directory.path().join("plan.json"), state.to_string()).unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments = ["plan", "--format", "json", "--gpus", "t4,h100", "--runs", path];
    let ran = run(&arguments.iter().copied().chain(["--", "train", "{N}"]).collect::<Vec<_>>());
    assert_eq!(ran.err, format!("oomscope: 15 of at most 15 runs are in {path}\n"));
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn runs_confirm_and_correct_what_was_predicted() {
    let t4 = |runs: &[(&str, u64, bool)]| {
        let report = plan_of_runs(runs);
        assert_eq!(report["name"], "N");
        let cell = cell(&report["gpus"][0], "as-is");
        (cell["size"].as_u64().unwrap(), cell["certainty"].as_str().unwrap().to_owned())
    };
    let (predicted, certainty) = t4(&[]);
    assert_eq!(certainty, "estimate");
    // It fits there, and has reserved as much as T4 has but half a gigabyte.
    let (size, certainty) = t4(&[("t4", predicted, true)]);
    assert!(size > predicted && certainty == "estimate", "{size}");
    let (size, _) = t4(&[("t4", predicted, false)]);
    assert!(size < predicted && size > predicted * 9 / 10, "{size}");
    let twice = t4(&[("t4", predicted, false), ("t4", size, true)]);
    assert_eq!(twice, (size, "confirmed".to_owned()));
}

/// Of programs that make more requests at larger sizes, and of recordings that have too little in common.
#[test]
fn a_plan_of_unpredictable_requests_follows_the_peaks() {
    let file = |program: &str, size: u64| format!("{size}=fixtures/sizes/2.15.0-{program}-{size}.pickle.gz");
    for (first, last) in [("rnn_steps", "rnn_steps"), ("gan", "dense")] {
        let report = json_of(&["plan", "--gpus", "t4,h100", &file(first, 4), &file(last, 13)]);
        let sizes = [0, 1].map(|gpu| cell(&report["gpus"][gpu], "as-is")["size"].as_u64().unwrap());
        assert!(13 < sizes[0] && sizes[0] < sizes[1], "{sizes:?}");
        assert_eq!(cell(&report["gpus"][0], "as-is")["certainty"], "estimate");
        let warnings = report["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|warning| warning["code"] == "unpaired"), "{warnings:?}");
    }
}

#[test]
fn an_impossible_plan_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    assert!(refusal(&["plan"]).contains("give recordings, such as 4=b4.pickle"));
    assert!(refusal(&["plan", "--runs", path, "--", "train", "4"]).contains("no word in braces"));
    assert!(refusal(&["plan", "--runs", path, "--", "train", "{A}", "{B}"]).contains("{A}, {B}"));
    assert!(refusal(&["plan", &dense(4)]).contains("give two of different sizes"));
    std::fs::write(directory.path().join("plan.json"), r#"{"command":["other"],"settings":"","runs":[]}"#).unwrap();
    let other = refusal(&["plan", "--runs", path, "--", "train", "{N}"]);
    assert!(other.contains("has the runs of another command: other"), "{other}");
}
