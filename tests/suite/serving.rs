//! The page of a serving engine in a dry run, and its verdict.

use serde_json::{Value, json};

use oomscope::analysis::{TrialOutcome, TrialReport, TrialsReport};
use oomscope::output::document::terminal;
use oomscope::output::report;
use oomscope::snapshot::Serving;

use super::dry_run::{read, recording};
use crate::pages::{assert_fits, style};
use crate::support::program::{analyze, file, run};
use crate::support::schema;

const GIB: u64 = 1 << 30;
/// The pages in tests/golden.
pub(crate) const GOLDEN: [&str; 3] = ["serving-ready", "serving-refused", "serving-tries"];

/// vLLM with Llama 3.1 8B on an H100.
fn engine() -> Value {
    json!({
        "engine": "vLLM", "version": "0.33.0", "set_options": ["load_format=dummy", "skip_tokenizer_init"],
        "ready": true, "max_model_len": 8192, "max_num_seqs": 1024, "max_num_batched_tokens": 8192,
        "memory_utilization": 0.95, "kv_cache_dtype": "auto", "quantization": "", "tensor_parallel": 1,
        "pipeline_parallel": 1, "kv_cache_tokens": 467_840, "device_bytes": 84_929_413_120u64,
        "free_bytes": 84_329_627_648u64, "budget_bytes": 80_682_942_464u64, "weight_bytes": 16_110_920_704u64,
        "graph_budget_bytes": 746_586_112, "activation_bytes": 1_918_940_672, "kv_cache_bytes": 61_321_988_608u64,
        "graph_bytes": 411_041_792, "requests": [[8192, 57.109], [32768, 14.277], [131_072, 3.569]],
    })
}

fn with_engine(serving: &Value, end: &Value) -> Value {
    let mut recorded = recording(&json!([]), 0, false);
    recorded["oomscope"]["dry_run"]["serving"] = json!(serving.to_string());
    recorded["oomscope"]["dry_run"]["end"] = end.clone();
    recorded
}

fn page(recorded: &Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "engine.json", recorded.to_string().as_bytes());
    run(&["analyze", &path]).out.replace(&*path, "engine.json")
}

fn golden(name: &str, page: &str) {
    assert!(GOLDEN.contains(&name));
    crate::golden::compare(name, "dry-run", page);
}

fn verdict(recorded: &Value) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "engine.json", recorded.to_string().as_bytes());
    analyze(&[&path])["dry_run"]["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn an_engine_that_is_ready_fits_on_one_screen() {
    let ready = with_engine(&engine(), &json!({ "kind": "ready" }));
    assert_eq!(verdict(&ready), "would-fit");
    let page = page(&ready);
    assert_fits("serving", &page, 100);
    golden("serving-ready", &page);
}

#[test]
fn random_numbers_of_dummy_weights_do_not_decide_a_start() {
    let mut ready = with_engine(&engine(), &json!({ "kind": "ready" }));
    let mut random = read("_local_scalar_dense", 1, 1_000_000, 7);
    (random["usage"], random["value"]) = (json!("branch"), json!("random"));
    ready["oomscope"]["dry_run"]["reads"] = json!([random]);
    assert_eq!(verdict(&ready), "would-fit");
    ready["oomscope"]["dry_run"]["reads"][0]["value"] = json!("zero");
    assert_eq!(verdict(&ready), "may-fit");
}

#[test]
fn an_engine_that_was_ready_has_started_whatever_ends_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let ready = with_engine(&engine(), &json!({ "kind": "ready" }));
    let path = file(&directory, "engine.json", ready.to_string().as_bytes());
    // 100 is added to the exit code of the verdict.
    for end in [["--ended-with", "1"], ["--ended-by", "9"], ["--ended-with", "0"]] {
        let ran = run(&[&["run", "--page-on", &path], &end[..]].concat());
        assert_eq!(ran.code, 100, "{end:?}: {}", ran.err);
    }
}

#[test]
fn an_engine_without_room_for_a_request_shows_its_need() {
    let mut small = engine();
    small["ready"] = json!(false);
    small["max_model_len"] = json!(131_072);
    small["kv_cache_bytes"] = json!(8 * GIB);
    small["error"] = json!("To serve at least one request with the model's max seq len (131072), ..");
    small["needed_kv_cache_bytes"] = json!(16 * GIB);
    small["possible_model_len"] = json!(65_536);
    for absent in ["kv_cache_tokens", "graph_bytes"] {
        small[absent] = json!(null);
    }
    small["requests"] = json!([]);
    let refused = with_engine(&small, &json!({ "kind": "exception", "code": 1, "error": "ValueError" }));
    assert_eq!(verdict(&refused), "would-not-fit");
    golden("serving-refused", &page(&refused));
}

fn start(remedy: Option<&str>, outcome: TrialOutcome, serving: Serving) -> TrialReport {
    TrialReport {
        remedy: remedy.map(str::to_owned),
        outcome,
        headroom_bytes: None,
        requested_bytes: None,
        location: None,
        reason: None,
        copy: remedy.map(|_| "--quantization fp8".to_owned()),
        output: None,
        serving: Some(serving),
    }
}

#[test]
fn a_first_start_that_compiles_is_shown_beside_a_later_one() {
    let first: Serving = serde_json::from_value(engine()).unwrap();
    let first = Serving { compiled: true, ..first };
    let later = Serving { compiled: false, kv_cache_tokens: Some(480_000), ..first.clone() };
    let runs = vec![
        start(None, TrialOutcome::Ends, first.clone()),
        start(Some("a later start"), TrialOutcome::Ends, later.clone()),
    ];
    let report = TrialsReport { gpu: "NVIDIA L4".to_owned(), usable_bytes: 22 * GIB, runs };
    assert_eq!(
        report.summary().answer,
        "467,840 tokens at the first start on NVIDIA L4 (dry run), which compiles; 480,000 later"
    );
    // Another option compiles again, and so is no later start.
    let fp8 = Serving { compiled: true, ..later };
    let runs = vec![start(None, TrialOutcome::Ends, first), start(Some("quantization=fp8"), TrialOutcome::Ends, fp8)];
    let report = TrialsReport { runs, ..report };
    assert_eq!(report.summary().action.as_deref(), Some("quantization=fp8"));
}

/// Its compiler may fail in a dry run, which shows nothing about memory.
#[test]
fn a_start_that_ended_for_another_reason_is_not_known() {
    let engine: Serving = serde_json::from_value(engine()).unwrap();
    let ended = Serving { kv_cache_tokens: None, requests: Vec::new(), ..engine };
    for (outcome, words) in [(TrialOutcome::Unknown, "not known"), (TrialOutcome::Fails, "does not start")] {
        let runs = vec![start(None, outcome, ended.clone())];
        let report = TrialsReport { gpu: "NVIDIA L4".to_owned(), usable_bytes: 22 * GIB, runs };
        let page = terminal(&report::trials(&report), style(100));
        assert_eq!(page.trim_end().rsplit("  ").next(), Some(words), "{page}");
    }
}

#[test]
fn starts_with_other_options_are_compared() {
    let ready: Serving = serde_json::from_value(engine()).unwrap();
    let refused = Serving { kv_cache_tokens: None, requests: Vec::new(), ..ready.clone() };
    let quantized = Serving { kv_cache_tokens: Some(529_248), ..ready };
    let runs =
        vec![start(None, TrialOutcome::Fails, refused), start(Some("quantization=fp8"), TrialOutcome::Ends, quantized)];
    let report = TrialsReport { gpu: "NVIDIA H100 80GB HBM3".to_owned(), usable_bytes: 79 * GIB, runs };
    golden("serving-tries", &terminal(&report::trials(&report), style(100)));
}

#[test]
fn gpus_that_share_a_model_are_counted() {
    let mut shared = engine();
    shared["tensor_parallel"] = json!(4);
    let page = page(&with_engine(&shared, &json!({ "kind": "ready" })));
    assert!(page.starts_with("would start on 4 x NVIDIA A10 (dry run): 15.0 GiB weights on each, "), "{page}");
}

#[test]
fn facts_of_another_kind_are_left_out() {
    let mut recorded = with_engine(&engine(), &json!({ "kind": "finished" }));
    for broken in [json!("{"), json!("[1]"), json!({ "engine": 1 }), json!({ "engine": "vLLM" })] {
        recorded["oomscope"]["dry_run"]["serving"] = broken;
        let page = page(&recorded);
        assert!(page.starts_with("would fit on NVIDIA A10 (dry run): "), "{page}");
    }
}

#[test]
fn a_plan_has_a_row_for_each_number_of_gpus() {
    let directory = tempfile::tempdir().unwrap();
    let runs = directory.path().join("runs");
    let plan = |gpus: &str, format: &str| {
        let _ = std::fs::remove_dir_all(&runs);
        let runs = runs.to_str().unwrap();
        run(&["plan", "--gpus", gpus, "--runs", runs, "--format", format, "--", "true", "vllm"])
    };
    let ran = plan("l4", "json");
    let answer: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}\n{}", ran.err));
    assert_eq!(answer["schema"], "oomscope/plan-serving/1");
    assert_eq!(schema::faults(&answer), [""; 0]);
    let rows = answer["rows"].as_array().unwrap();
    let counts: Vec<u64> = rows.iter().map(|row| row["gpus"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 4, 8]);
    assert!(rows.iter().all(|row| row["verdict"] == "no-verdict"), "{answer}");
    let page = plan("l4", "human").out;
    assert!(page.starts_with("it starts on none of these GPUs (dry run)"), "{page}");
    let ran = plan("t4,l4,a10,a100,h100", "human");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("name at most 4 GPUs"), "{}", ran.err);
}
