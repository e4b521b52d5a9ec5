//! Many snapshots in one call: lines that are written as soon as a file is done.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};

use crate::support::program::{
    analyze, command, file, job, oomscope, pickled, refusal, result_of, run, text, wait_briefly,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";

fn rows(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn paths(lines: &str) -> Vec<String> {
    rows(lines).iter().map(|row| row["path"].as_str().unwrap().to_owned()).collect()
}

/// `count` ranks, links to one recording.
#[cfg(unix)]
fn ranks(directory: &TempDir, count: usize) -> Vec<String> {
    let recording = fs::canonicalize(OOM).unwrap();
    let link = |rank| {
        let path = directory.path().join(format!("rank{rank:04}.pickle.gz"));
        std::os::unix::fs::symlink(&recording, &path).unwrap();
        text(&path)
    };
    (0..count).map(link).collect()
}

/// A file that a reader waits for until somebody writes it.
#[cfg(unix)]
fn pending(directory: &TempDir, name: &str) -> String {
    let path = directory.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    text(&path)
}

#[cfg(unix)]
fn start(args: &[String]) -> Child {
    let mut command = command();
    command.args(["analyze", "--format", "jsonl"]).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
#[cfg(unix)]
fn a_killed_job_keeps_the_lines_of_the_files_that_were_done() {
    let directory = TempDir::new().unwrap();
    let mut inputs = ranks(&directory, 20);
    inputs.insert(15, pending(&directory, "rank0014b.pickle"));
    let mut job = start(&inputs);
    let mut lines = BufReader::new(job.stdout.take().unwrap());
    let mut seen = String::new();
    for _ in 0..15 {
        lines.read_line(&mut seen).unwrap();
    }
    assert!(job.try_wait().unwrap().is_none(), "it waits for the sixteenth file");
    job.kill().unwrap();
    job.wait().unwrap();
    lines.read_to_string(&mut seen).unwrap();
    assert_eq!(paths(&seen), inputs[..15]);
}

#[test]
#[cfg(unix)]
fn lines_keep_the_order_of_the_files_whichever_is_done_first() {
    let directory = TempDir::new().unwrap();
    let mut inputs = ranks(&directory, 30);
    let slow = pending(&directory, "slow.pickle");
    inputs.insert(0, slow.clone());
    let mut job = start(&inputs);
    let mut slow = fs::OpenOptions::new().write(true).open(slow).unwrap();
    slow.write_all(&pickled(3, "late")).unwrap();
    drop(slow);
    let mut lines = String::new();
    job.stdout.take().unwrap().read_to_string(&mut lines).unwrap();
    assert!(wait_briefly(&mut job).unwrap().success());
    assert_eq!(paths(&lines), inputs);
    assert_eq!(rows(&lines).iter().filter(|row| row["verdict"] == "fragmentation").count(), 30);
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_ends_the_work() {
    let directory = TempDir::new().unwrap();
    let mut job = start(&ranks(&directory, 400));
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(rows(&line).len(), 1);
    assert!(wait_briefly(&mut job).unwrap().success());
}

#[test]
fn a_file_that_cannot_be_read_is_a_line_with_its_error() {
    let directory = TempDir::new().unwrap();
    let damaged = file(&directory, "rank1.pickle", &pickled(9, "x")[..60]);
    let ran = run(&["analyze", "--format", "jsonl", OOM, &damaged, "missing.pickle", OOM]);
    assert_eq!(ran.code, 2);
    let rows = rows(&ran.out);
    assert_eq!(paths(&ran.out), [OOM, &damaged, "missing.pickle", OOM]);
    let keys = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!((keys(&rows[1]), keys(&rows[2])), ("error path rank".to_owned(), "error path".to_owned()));
    assert_eq!(rows[1]["rank"], json!(1));
    assert!(rows[1]["error"].as_str().unwrap().contains("byte"), "{}", rows[1]);
    assert_eq!((rows[0]["verdict"].as_str(), rows[0].get("error")), (Some("fragmentation"), None));
    assert_eq!(ran.err.lines().count(), 2, "{}", ran.err);
    assert!(ran.err.starts_with(&format!("oomscope: {damaged}: ")), "{}", ran.err);
    let none = run(&["analyze", "--format", "jsonl", &damaged]);
    assert_eq!((none.code, paths(&none.out)), (2, vec![damaged]));
}

#[test]
fn a_rank_that_is_no_snapshot_is_a_line_and_other_files_are_none() {
    let directory = TempDir::new().unwrap();
    let directory_path = text(&job(&directory));
    let ran = run(&["analyze", "--format", "jsonl", &directory_path]);
    assert_eq!((ran.code, rows(&ran.out).len()), (0, 3), "{}", ran.err);
    let snapshot = json!({"segments": [], "device_traces": [[]]}).to_string();
    let ranks = TempDir::new().unwrap();
    let other = file(&ranks, "rank0.json", b"{}");
    file(&ranks, "rank1.json", snapshot.as_bytes());
    file(&ranks, "settings.json", b"{}");
    let ran = run(&["analyze", "--format", "jsonl", &text(ranks.path())]);
    assert_eq!(ran.code, 2);
    assert_eq!(rows(&ran.out).len(), 2);
    assert_eq!(rows(&ran.out)[1]["path"], json!(other));
    assert!(rows(&ran.out)[1]["error"].as_str().unwrap().contains("named like the other ranks"));
}

#[test]
fn standard_input_has_the_name_that_it_is_given() {
    let name = "s3://bucket/node-3/rank17.pickle.gz";
    let ran =
        oomscope(&["analyze", "--format", "jsonl", "-", "--name", name]).pipe_stdin(OOM).unwrap().output().unwrap();
    let row = &rows(&String::from_utf8(ran.stdout).unwrap())[0];
    assert_eq!((&row["path"], &row["rank"], &row["host"]), (&json!(name), &json!(17), &json!("node-3")));
    let page = oomscope(&["analyze", "-", "--name", name]).pipe_stdin(OOM).unwrap().output().unwrap();
    assert!(String::from_utf8(page.stdout).unwrap().contains(name));
    assert!(refusal(&["analyze", OOM, "--name", "rank1"]).contains("--name names standard input"));
}

#[test]
fn a_quoted_pattern_names_files_and_directories() {
    let directory = TempDir::new().unwrap();
    let directory_path = text(&job(&directory));
    let lines = |pattern: &str| {
        let printed = run(&["analyze", "--format", "jsonl", &format!("{directory_path}/{pattern}")]).out;
        let names = paths(&printed).into_iter().map(|path| path.rsplit(['/', '\\']).next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(lines("rank_*.gz"), ["rank_0.pickle.gz", "rank_1.PICKLE.gz"]);
    assert_eq!(lines("**/rank_?.pickle.gz"), ["rank_2.pickle.gz", "rank_0.pickle.gz"]);
    assert_eq!(lines("node[0-9]"), ["rank_2.pickle.gz"]);
    assert!(refusal(&["analyze", "nothing/rank*.pickle"]).contains("no file matches this pattern"));
    assert!(refusal(&["analyze", "a/[b.pickle"]).contains("is no pattern"));
    let odd = file(&directory, "a[1].pickle", &pickled(1, ""));
    assert_eq!(paths(&result_of(&["analyze", "--format", "jsonl", &odd])), [odd]);
}

#[test]
fn names_distinguish_ranks_from_earlier_snapshots_of_a_process() {
    let directory = TempDir::new().unwrap();
    let analyzed = |names: &[&str]| {
        let job = TempDir::new_in(directory.path()).unwrap();
        for name in names {
            let path = job.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(OOM, path).unwrap();
        }
        let report = run(&["analyze", "--format", "json", &text(job.path())]).out;
        let ranks = &serde_json::from_str::<Value>(&report).unwrap()["ranks"];
        (ranks["rows"].as_array().unwrap().len(), ranks["earlier_dumps"].as_u64().unwrap())
    };
    // The same file under two names is the same process, unless the names say otherwise.
    assert_eq!(analyzed(&["a.pickle.gz", "b.pickle.gz"]), (1, 1));
    assert_eq!(analyzed(&["rank0.pickle.gz", "rank1.pickle.gz"]), (2, 0));
    assert_eq!(analyzed(&["rank0.pickle.gz", "rank0-2.pickle.gz", "rank1.pickle.gz"]), (2, 1));
    assert_eq!(analyzed(&["a.pickle.gz", "rank0.pickle.gz"]), (1, 1));
}

/// A trace of which the ring kept only the entries from `first` on.
fn wrapped(first: u64) -> String {
    let entry = |i: u64| {
        let time = 1_700_000_000_000_000 + i;
        json!({"action": "alloc", "addr": 4096 * i, "size": 512, "stream": 0, "time_us": time})
    };
    json!({"segments": [], "device_traces": [(first..first + 20).map(entry).collect::<Vec<_>>()]}).to_string()
}

#[test]
fn a_full_ring_at_a_later_step_belongs_to_the_same_process() {
    let directory = TempDir::new().unwrap();
    for step in [100, 200] {
        for rank in [0, 1] {
            let folder = directory.path().join(format!("iteration_{step}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("rank{rank}.json")), wrapped(step * 50 + rank)).unwrap();
        }
    }
    let report = analyze(&[&text(directory.path())]);
    let rows = report["ranks"]["rows"].as_array().unwrap();
    let kept: Vec<&str> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(report["ranks"]["earlier_dumps"], 2);
    assert!(kept.len() == 2 && kept.iter().all(|path| path.contains("iteration_200")), "{kept:?}");
}

const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";

fn json(args: &[&str]) -> Value {
    let ran = run(args);
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{args:?}: {}", ran.err))
}

#[test]
fn a_snapshot_without_an_answer_is_a_line_or_a_message() {
    const NO_TRACE: &str = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
    for command in ["replay", "timeline", "whatif"] {
        let ran = run(&[command, "--format", "jsonl", OOM, NO_TRACE, HOLES]);
        assert_eq!((ran.code, paths(&ran.out)), (2, vec![OOM.into(), NO_TRACE.into(), HOLES.into()]), "{}", ran.err);
        assert!(rows(&ran.out)[1]["error"].as_str().unwrap().starts_with("no trace"), "{}", ran.out);
        let single = json(&[command, "--format", "json", HOLES]);
        assert_eq!(rows(&ran.out)[2], single, "a line is the object of the snapshot");
    }
    for command in ["replay", "timeline", "whatif"] {
        assert!(refusal(&[command, OOM, HOLES]).contains("with --format jsonl several, one line each"));
    }
}
