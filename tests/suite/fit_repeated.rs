//! `oomscope fit` of programs that make more requests at larger sizes.

use serde_json::{Value, json};

use crate::support::cases::is_complete;
use crate::support::program::result_of;

/// Programs of `tests/oracle/fit_truth_programs.py`, with the peaks that PyTorch counted at 48, and a device that ends the
/// search soon after it.
const LAYERS: (&str, [u64; 2], &str) = ("layers", [97_534_976, 113_246_208], "110MiB");
const TOKENS: (&str, [u64; 2], &str) = ("generated", [33_826_816, 35_651_584], "35MiB");
const SPLIT: (&str, [u64; 2], &str) = ("chunked_scores", [15_759_872, 31_457_280], "31MiB");

fn fit(program: &str, sizes: &[u64], more: &[&str]) -> Value {
    let files = sizes.iter().map(|size| format!("{size}=fixtures/repeated/{program}-{size}.pickle.gz"));
    let files: Vec<String> = files.collect();
    let args = ["fit", "--format", "json"].into_iter().chain(files.iter().map(String::as_str));
    let args: Vec<&str> = args.chain(more.iter().copied()).collect();
    serde_json::from_str(&result_of(&args)).unwrap()
}

/// Each layer adds parameters, gradients, states, and blocks that the backward pass frees in reverse order; each token
/// copies a cache that is one longer; 11 rows for each unit are split into chunks of 50, of which the last is smaller.
#[test]
fn peaks_with_more_repetitions_are_those_of_the_allocator() {
    for (program, peaks, capacity) in [LAYERS, TOKENS, SPLIT] {
        let report = fit(program, &[12, 20], &["--at", "48", "--capacity", capacity]);
        let row = &report["devices"][0]["sizes"][0];
        let predicted = ["peak_allocated_bytes", "peak_reserved_bytes"].map(|key| row[key].as_u64().unwrap());
        assert_eq!((row["size"].as_u64(), predicted), (Some(48), peaks), "{program}");
        let mut warnings = report["warnings"].as_array().unwrap().iter();
        assert!(warnings.all(|warning| warning["code"] == "far-away"), "{program}: {}", report["warnings"]);
    }
}

#[test]
fn the_report_describes_a_repetition() {
    let report = fit("layers", &[12, 20], &["--capacity", "110MiB"]);
    let device = &report["devices"][0];
    assert_eq!(device["repeated"], json!({"repetitions": 1, "units": 1, "operations": 56}));
    let line = &device["growth"][0];
    assert_eq!((&line["bytes_per_unit"], &line["law"]), (&json!(1 << 20), &json!("linear")));
    assert_eq!(fit("generated", &[12, 20], &["--capacity", "35MiB"])["devices"][0]["repeated"]["units"], 1);
}

/// Two recordings do not show whether the number of repetitions is a line.
#[test]
fn only_a_further_recording_makes_the_answer_certain() {
    let certainty = |sizes: &[u64], mib: &str| {
        let report = fit("layers", sizes, &["--capacity", mib]);
        let largest = &report["devices"][0]["largest"];
        (largest["size"].as_u64().unwrap(), largest["certainty"].as_str().unwrap().to_owned())
    };
    assert_eq!(certainty(&[12, 20], "70MiB"), (27, "should".to_owned()));
    assert_eq!(certainty(&[12, 20, 48], "120MiB").1, "checked");
}

/// The recordings have whole chunks only. At an odd size the last chunk is smaller, which they do not show: on 30 MiB the
/// program really runs at 45.
#[test]
fn a_remainder_that_no_recording_has_is_not_certain() {
    let report = fit("whole_chunks", &[12, 20, 32], &["--capacity", "30MiB"]);
    let device = &report["devices"][0];
    assert_eq!(device["repeated"]["units"], 2);
    assert_eq!((&device["largest_safe"]["size"], &device["largest_safe"]["certainty"]), (&json!(44), &json!("should")));
}

/// Among 3 and 5 chunks the first and the last differ from the others in the backward pass, which leaves none in common.
#[test]
fn nothing_is_named_with_too_few_repetitions() {
    let report = fit("chunks_kept", &[12, 20], &["--capacity", "40MiB"]);
    let device = &report["devices"][0];
    assert_eq!([&device["repeated"], &device["largest"], &device["largest_safe"]], [&Value::Null; 3]);
    assert_eq!(report["warnings"][0]["code"], "unpaired");
    let requests: Vec<u64> = device["requests"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert!(requests[0] < requests[1]);
    let files = [12, 20].map(|size| format!("{size}=fixtures/repeated/chunks_kept-{size}.pickle.gz"));
    let page = result_of(&["fit", &files[0], &files[1], "--capacity", "40MiB"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.starts_with("the largest size cannot be predicted: a larger size makes more requests"), "{page}");
}

/// 65,000 tokens would be a million operations.
#[test]
fn too_many_repetitions_are_refused_by_name() {
    if !is_complete() {
        return;
    }
    let files = [12, 20].map(|size| format!("{size}=fixtures/repeated/generated-{size}.pickle.gz"));
    let page = result_of(&["fit", &files[0], &files[1], "--capacity", "1GiB"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("so often that a replay would take more than a million"), "{page}");
}
