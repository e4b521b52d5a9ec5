//! The lines that a page begins with: the answer, who holds most, what to do, what to copy.

use crate::support::pickle_tree::Tree;
use crate::support::program::{analyze, file, result_of, run};
use crate::support::{fixtures, plain_json, schema};
use serde_json::{Value, json};
use tempfile::TempDir;

const FAILED: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
/// A run of every command.
const COMMANDS: [&str; 9] = [
    "analyze fixtures/2.15.0-oom_varlen-at-oom.pickle.gz",
    "analyze fixtures/2.15.0-two_devices.pickle.gz fixtures/2.15.0-holes-at-oom.pickle.gz",
    "replay fixtures/2.15.0-holes-at-oom.pickle.gz",
    "replay --set expandable_segments:True fixtures/2.15.0-holes-at-oom.pickle.gz",
    "whatif fixtures/2.15.0-holes-at-oom.pickle.gz",
    "timeline fixtures/2.15.0-holes-at-oom.pickle.gz",
    "check --max-ooms 0 fixtures/2.15.0-holes-at-oom.pickle.gz",
    "diff fixtures/diff/base.pickle.gz fixtures/diff/renamed.pickle.gz",
    "explain fixtures/logs/2.15.0-fragmentation.log",
];

/// What a run of `command` prints as `format`.
fn printed(command: &str, format: &str) -> String {
    let args: Vec<&str> = command.split(' ').chain(["--format", format]).collect();
    run(&args).out
}

/// The summary in the JSON of `command`.
fn summary_of(command: &str) -> Value {
    let report: Value = serde_json::from_str(&printed(command, "json")).unwrap();
    report["summary"].clone()
}

fn summary(file: &str) -> Value {
    analyze(&[&format!("fixtures/{file}.pickle.gz")])["summary"].clone()
}

fn text<'a>(summary: &'a Value, key: &str) -> &'a str {
    summary[key].as_str().unwrap_or_default()
}

#[test]
fn a_failure_is_named_with_a_setting_that_serves_it() {
    let fields = summary("goes_on/buckets-430");
    assert!(text(&fields, "answer").starts_with("out of memory on GPU 0: backward of"));
    assert!(text(&fields, "answer").contains("fragmentation"));
    assert_eq!(fields["copy"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
}

#[test]
fn growth_that_explains_a_failure_comes_before_its_verdict() {
    let fields = summary("dead_ends/leak_losses");
    assert!(text(&fields, "answer").contains("growth: each step keeps 6.38 MiB"), "{fields}");
    // The cross-entropy of each step is kept with its graph.
    assert!(text(&fields, "action").starts_with("keep .item() or .detach() of the result of"), "{fields}");
    assert_eq!(fields["copy"], "/app/workloads2.py:184");
}

#[test]
fn a_setting_that_only_postpones_the_failure_is_not_advised() {
    for (file, instead, copy) in [
        ("dead_ends/fsdp2", "checkpoint each of 6 calls (workloads2.py:172)", "/app/workloads2.py:172"),
        ("dead_ends/load_checkpoint", "load the checkpoint into host memory", "map_location=\"cpu\""),
    ] {
        let fields = summary(file);
        assert!(text(&fields, "action").starts_with(instead), "{fields}");
        assert!(text(&fields, "copy").starts_with(copy), "{fields}");
    }
}

#[test]
fn that_nothing_failed_is_said() {
    let fields = summary("2.15.0-gpt_varlen-late");
    assert!(text(&fields, "answer").starts_with("no request failed: "));
    assert!(text(&fields, "action").contains("empty_cache() releases 2.28 GiB of the 3.11 GiB"), "{fields}");
    let whole = summary("2.15.0-conv_train");
    assert!(text(&whole, "answer").starts_with("no request failed: "));
    assert_eq!((&whole["action"], &whole["copy"]), (&Value::Null, &Value::Null));
    let fields = summary("2.15.0-gpt_varlen-wrapped");
    assert!(text(&fields, "answer").contains("(what is left of the recording)"), "{fields}");
    assert!(text(&fields, "answer").contains("at least"), "{fields}");
}

#[test]
fn without_a_history_it_says_what_to_write() {
    let fields = summary("2.15.0-gpt_varlen-no-history");
    assert!(text(&fields, "answer").starts_with("no history recorded"));
    assert!(text(&fields, "copy").contains("oomscope run"));
}

#[test]
fn the_page_begins_with_it() {
    for format in ["human", "markdown"] {
        let file = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
        let page = result_of(&["analyze", "--format", format, file]);
        let line = page.lines().take(4).find(|line| line.replace('*', "").contains("out of memory on GPU 0"));
        assert!(line.is_some(), "{page}");
    }
}

#[test]
fn every_command_has_an_answer_and_fits_on_a_screen() {
    for command in COMMANDS {
        let fields = summary_of(command);
        assert_eq!(fields.as_object().unwrap().len(), 4, "{command}");
        assert!(text(&fields, "answer").split_whitespace().count() >= 5, "{command}: {fields}");
        let page = printed(command, "human");
        assert!(page.lines().count() <= 40, "{command}\n{page}");
        assert!(page.lines().next().is_some_and(|line| line.split_whitespace().count() >= 3), "{command}\n{page}");
        let line = printed(command, "jsonl");
        assert_eq!(line.trim_end().lines().count(), if command.contains("two_") { 2 } else { 1 });
    }
}

#[test]
fn what_is_copied_from_a_what_if_serves_the_request() {
    let fields = summary_of("whatif fixtures/goes_on/buckets-430.pickle.gz");
    assert!(text(&fields, "answer").contains(" tried help: expandable_segments:True; "), "{fields}");
    assert!(text(&fields, "answer").contains("; the job goes on until a larger input comes, with 32.3 MiB headroom"));
    assert_eq!(fields["copy"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    let later = self::summary_of(&format!("whatif --set max_split_size_mb:256 {FAILED}"));
    assert!(
        text(&later, "answer").contains("; the job fails again at the next request, at workloads.py:26"),
        "{later}"
    );
    assert_eq!(text(&later, "copy"), format!("oomscope analyze {FAILED}"));
    let none = self::summary_of("whatif fixtures/failures/capacity.pickle.gz");
    assert!(text(&none, "answer").starts_with("nothing helps of "), "{none}");
    assert!(text(&none, "action").contains("live memory alone exceeds the device"), "{none}");
    assert_eq!(none["copy"], Value::Null);
    let served = self::summary_of("whatif fixtures/2.15.0-gpt_varlen-late.pickle.gz");
    assert!(text(&served, "answer").ends_with(" tried help: expandable_segments:True; the job goes on"), "{served}");
    let later = self::summary_of("whatif fixtures/dead_ends/fsdp2.pickle.gz");
    assert!(text(&later, "action").starts_with("checkpoint each of 6 calls"), "{later}");
    assert_eq!(later["copy"], "/app/workloads2.py:172");
    let little = self::summary_of("whatif fixtures/2.15.0-gpt_varlen-at-oom.pickle.gz");
    assert!(text(&little, "action").starts_with("try expandable_segments:True"), "{little}");
}

#[test]
fn a_replay_says_whether_what_ifs_can_be_relied_on() {
    let exact = summary_of(&format!("replay {FAILED}"));
    assert!(text(&exact, "answer").starts_with("reproduced: all 53,079 recorded entries of GPU 0"));
    assert_eq!(text(&exact, "copy"), format!("oomscope whatif {FAILED}"));
    let changed = summary_of(&format!("replay --set expandable_segments:True {FAILED}"));
    assert_eq!(text(&changed, "answer"), "the job then: fails 1 request later");
    assert_eq!(text(&changed, "copy"), format!("oomscope analyze {FAILED}"));
}

#[test]
fn memory_of_others_is_asked_for_where_the_device_is_not_known() {
    let file = "fixtures/failures/outside.pickle.gz";
    let unknown = summary_of(&format!("analyze {file}"));
    assert!(text(&unknown, "answer").contains("; capacity, probably: "), "{unknown}");
    assert!(text(&unknown, "action").contains("--capacity 80GiB"), "{unknown}");
    let known = summary_of(&format!("analyze --capacity 500MiB {file}"));
    assert!(text(&known, "answer").contains("; non-pytorch: "), "{known}");
    assert!(!text(&known, "action").contains("--capacity"), "{known}");
    assert_eq!(known["copy"], "nvidia-smi");
}

#[test]
fn the_page_says_what_to_do() {
    let page = result_of(&["analyze", "fixtures/failures/pending_free.pickle.gz"]);
    assert!(page.contains("do      Synchronize with the other stream"), "{page}");
}

#[test]
fn expandable_segments_are_recommended_where_a_replay_gains_by_them() {
    let gains = summary("gate/scattered");
    assert!(text(&gains, "action").ends_with("the peak of reserved memory is 798 MiB instead of 866 MiB"), "{gains}");
    assert_eq!(gains["copy"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    // 2.1 GiB are stuck here, of which expandable segments would need almost all.
    assert!(summary("2.15.0-fuzz-roundup")["action"].is_null());
}

#[test]
fn graphs_that_no_backward_pass_uses_are_avoided_by_no_grad() {
    let name = "where/2.15.0-kept_graphs";
    let peak = analyze(&[&format!("fixtures/{name}.pickle.gz")])["snapshots"][0]["devices"][0]["peak"].clone();
    let mut failed: Value =
        serde_json::from_str(&plain_json::dump(&Tree::read(&fixtures::pickle(name)).unwrap())).unwrap();
    let trace = failed["device_traces"][0].as_array_mut().unwrap();
    trace.truncate(1 + usize::try_from(peak["allocated_event"].as_u64().unwrap()).unwrap());
    let mut oom = trace.iter().rfind(|entry| entry["action"] == "alloc").unwrap().clone();
    (oom["action"], oom["size"]) = (json!("oom"), json!(32 << 20));
    (oom["device_free"], oom["addr"]) = (json!(0), json!(0));
    trace.push(oom);
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "failed.json", failed.to_string().as_bytes());
    let summary = analyze(&[&path])["summary"].clone();
    assert!(text(&summary, "action").starts_with("run the model at sharded.py:96 under"), "{summary}");
    assert_eq!(summary["copy"], "/app/sharded.py:96");
}

#[test]
fn recorded_options_are_kept_in_what_is_copied() {
    let kept = summary("2.15.0-fuzz-max_split-gc-oom");
    let expected = "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.7,max_split_size_mb:32";
    assert_eq!(kept["copy"], expected, "the limit on splits is changed, the threshold is as recorded");
    let on = summary_of("analyze fixtures/2.15.0-holes-expandable.pickle.gz");
    assert!(!text(&on, "copy").contains("expandable_segments"), "it is set: {on}");
}

#[test]
fn a_brief_answer_is_small_whatever_the_names() {
    let directory = TempDir::new().unwrap();
    let long = directory.path().join("d".repeat(200)).join("e".repeat(200));
    std::fs::create_dir_all(&long).unwrap();
    let names = fixtures::names().into_iter().filter(|name| name.starts_with("2.15.0-"));
    for name in names.map(|name| fixtures::path(&name)).chain(["fixtures/failures/outside.pickle.gz".into()]) {
        let file = long.join(name.file_name().unwrap());
        std::fs::copy(&name, &file).unwrap();
        let printed = result_of(&["analyze", "--format", "json", "--brief", file.to_str().unwrap()]);
        assert!(printed.len() < 2048, "{}: {}", name.display(), printed.len());
        let brief: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(brief["schema"], "oomscope/analyze-brief/1");
        assert!(!text(&brief["summary"], "answer").is_empty());
    }
    assert_eq!(run(&["analyze", "--brief", FAILED]).code, 2);
}

#[test]
fn a_line_each_tells_rank_host_and_verdict() {
    let directory = TempDir::new().unwrap();
    let node = directory.path().join("node-1");
    std::fs::create_dir(&node).unwrap();
    for (rank, file) in [(0, FAILED), (13, "fixtures/2.15.0-streams.pickle.gz")] {
        std::fs::copy(file, node.join(format!("rank{rank}.pickle.gz"))).unwrap();
    }
    let printed = result_of(&["analyze", "--format", "jsonl", directory.path().to_str().unwrap()]);
    let rows: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fields = |row: &Value| (row["rank"].clone(), row["host"].clone(), row["verdict"].clone());
    assert_eq!(
        rows.iter().map(fields).collect::<Vec<_>>(),
        [(0.into(), "node-1".into(), "capacity".into()), (13.into(), "node-1".into(), Value::Null),]
    );
    assert!(schema::list(&rows[0]["top_lines"]).len() > 3);
}

#[test]
fn a_comment_has_room_for_many_ranks() {
    let directory = TempDir::new().unwrap();
    for rank in 0..64 {
        let name = directory.path().join(format!("rank{rank}.pickle.gz"));
        std::fs::copy("fixtures/2.15.0-holes-at-oom.pickle.gz", name).unwrap();
    }
    let directory = directory.path().to_str().unwrap();
    for top in ["10", "1000000"] {
        let page = result_of(&["analyze", "--format", "markdown", "--top", top, directory]);
        assert!(page.chars().count() <= 65_536, "{}", page.len());
        assert!(page.starts_with("## **64 ranks**"), "{page}");
    }
}
