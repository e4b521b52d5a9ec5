//! The lines that a page begins with: the answer, who holds most, what to do, what to copy.
//! Slow: many runs of the program.

use crate::support::program::{analyze, file, result_of, run};
use crate::support::{fixtures, plain_json, schema};
use serde_json::{Value, json};
use tempfile::TempDir;

const FAILED: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

fn text<'a>(summary: &'a Value, key: &str) -> &'a str {
    summary[key].as_str().unwrap_or_default()
}

#[test]
fn graphs_that_no_backward_pass_uses_are_avoided_by_no_grad() {
    let name = "where/2.15.0-kept_graphs";
    let peak = analyze(&[&format!("fixtures/{name}.pickle.gz")])["snapshots"][0]["devices"][0]["peak"].clone();
    let mut failed = plain_json::recording(name);
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
fn a_line_each_has_rank_host_and_verdict() {
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
