//! The lines that a page begins with: the answer, who holds most, what to do, what to copy.

use crate::support::program::{analyze, result_of};
use serde_json::Value;

fn summary(file: &str) -> Value {
    analyze(&[&format!("fixtures/{file}.pickle.gz")])["summary"].clone()
}

fn text<'a>(summary: &'a Value, key: &str) -> &'a str {
    summary[key].as_str().unwrap_or_default()
}

#[test]
fn a_failure_is_named_with_a_setting_that_serves_it() {
    let told = summary("2.15.0-oom_varlen-at-oom");
    assert!(text(&told, "answer").starts_with("out of memory on device 0 at app/workloads.py:26"));
    assert!(text(&told, "answer").contains("fragmentation"));
    assert_eq!(told["copy"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
}

#[test]
fn growth_that_explains_a_failure_comes_before_its_verdict() {
    let told = summary("dead_ends/leak_losses");
    assert!(text(&told, "answer").contains("memory grows by 6.92 MiB a step"), "{told}");
    assert!(text(&told, "action").contains("keeps after each step"), "{told}");
    assert_eq!(told["copy"], "/app/workloads2.py:161");
}

#[test]
fn a_setting_that_only_postpones_the_failure_is_not_advised() {
    for file in ["dead_ends/fsdp2", "dead_ends/load_checkpoint"] {
        let told = summary(file);
        assert!(text(&told, "action").starts_with("hold less at that moment"), "{told}");
        assert!(text(&told, "copy").starts_with("/app/workloads2.py:"), "{told}");
    }
}

#[test]
fn that_nothing_failed_is_said() {
    let told = summary("2.15.0-gpt_varlen-late");
    assert!(text(&told, "answer").starts_with("no request failed in this recording of 40.5 ms"));
    assert!(text(&told, "action").contains("record before the model is built"), "{told}");
    let whole = summary("2.15.0-conv_train");
    assert!(text(&whole, "answer").starts_with("no request failed in this recording"));
    assert_eq!((&whole["action"], &whole["copy"]), (&Value::Null, &Value::Null));
    let told = summary("2.15.0-gpt_varlen-wrapped");
    assert!(text(&told, "answer").contains("in what is left of this recording"), "{told}");
    assert!(text(&told, "answer").contains("at least"), "{told}");
}

#[test]
fn without_a_history_it_says_what_to_write() {
    let told = summary("2.15.0-gpt_varlen-no-history");
    assert!(text(&told, "answer").starts_with("no history was kept"));
    assert!(text(&told, "copy").contains("_record_memory_history(max_entries="));
}

#[test]
fn the_page_begins_with_it() {
    for format in ["human", "markdown"] {
        let file = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
        let page = result_of(&["analyze", "--format", format, file]);
        let line = page.lines().take(4).find(|line| line.contains("out of memory on device 0"));
        assert!(line.is_some(), "{page}");
    }
}
