//! Several devices side by side: of one snapshot, or of the ranks of a job. Slow: many runs of the program.

use std::fs;

use crate::support::program::{analyze, file, job, pickled, refusal, result_of, run, text};
use crate::support::schema::list;
use crate::support::{fixtures, made, plain_json};
use serde_json::{Value, json};
use tempfile::TempDir;

const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const ROUNDUP: &str = "fixtures/2.15.0-fuzz-roundup.pickle.gz";
const CONV: &str = "fixtures/2.15.0-conv_train.pickle.gz";
const TWO_DEVICES: &str = "fixtures/2.15.0-two_devices.pickle.gz";
const STREAMS: &str = "fixtures/2.15.0-streams-lag.pickle.gz";

/// A snapshot, as JSON, of devices that hold so many GiB each, all allocated by one line.
fn devices(gib: &[u64]) -> Value {
    let frames = made::frames(&[("/app/train.py", 7, "train")]);
    let block = |gib: &u64| made::live(0x7000_0000_0000, gib << 30, &frames);
    let segments: Vec<Value> = (0..).zip(gib).map(|(device, gib)| made::segment(device, &[block(gib)])).collect();
    made::snapshot(&segments, &vec![Vec::new(); gib.len()])
}

fn written(directory: &TempDir, name: &str, snapshot: &Value) -> String {
    file(directory, name, snapshot.to_string().as_bytes())
}

#[test]
fn devices_of_one_snapshot_are_side_by_side_the_worst_first() {
    let directory = TempDir::new().unwrap();
    let path = written(&directory, "a.json", &devices(&[8, 78, 20]));
    let report = analyze(&[&path]);
    let order: Vec<u64> =
        report["ranks"]["rows"].as_array().unwrap().iter().map(|row| row["device"].as_u64().unwrap()).collect();
    assert_eq!(order, [1, 2, 0]);
    let page = result_of(&["analyze", "--full", &path]);
    assert!(page.contains("peaks   GPU 1 stands out"), "{page}");
    let memory = |device: u64| page.find(&format!("Memory of GPU {device}")).unwrap();
    assert!(memory(1) < memory(2) && memory(2) < memory(0), "{page}");
    assert!(page.contains("no failure") && !page.contains("capacity"), "{page}");
    let known = result_of(&["analyze", "--capacity", "80GiB", &path]);
    assert!(known.lines().any(|line| line.contains("GPU 1") && line.ends_with("98%")), "{known}");
}

/// A snapshot of one rank: it holds so many GiB on the device of its number, and PyTorch wrote an entry for each of four
/// visible devices.
fn rank_of_four(rank: usize, gib: &[u64]) -> Value {
    let mut snapshot = devices(gib);
    let mark = json!([{ "action": "snapshot", "addr": 0, "size": 0, "stream": 0, "frames": [] }]);
    snapshot["device_traces"] = json!([mark, mark, mark, mark]);
    let device = json!({ "name": "NVIDIA H100 80GB HBM3", "total_bytes": 80_u64 << 30 });
    snapshot["oomscope"] = json!({
        "recorder": 1, "reason": "exit", "rank": rank.to_string(), "world_size": "4", "host": "node", "pid": 100 + rank,
        "devices": [device, device, device, device],
    });
    for segment in snapshot["segments"].as_array_mut().unwrap() {
        let index = usize::try_from(segment["device"].as_u64().unwrap()).unwrap();
        segment["device"] = json!(if index == 0 { rank } else { index - 1 });
    }
    snapshot
}

#[test]
fn a_device_that_never_held_memory_is_no_row() {
    let directory = TempDir::new().unwrap();
    for rank in 0..4 {
        written(&directory, &format!("rank{rank}.json"), &rank_of_four(rank, &[8]));
    }
    let report = analyze(&[&text(directory.path())]);
    let rows = list(&report["ranks"]["rows"]);
    let of: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["rank"].as_str().unwrap(), row["device"].as_u64().unwrap())).collect();
    assert_eq!(of, [("0", 0), ("1", 1), ("2", 2), ("3", 3)]);
    // A process that held nothing keeps one device.
    let path = written(&directory, "empty.json", &rank_of_four(2, &[]));
    assert_eq!(list(&analyze(&[&path])["snapshots"][0]["devices"]).len(), 1);
}

/// A recording of one rank, which requests MiB from lines of `train.py` and, in a call of a module, of `model.py`.
fn recording(rank: usize, device: u64, requests: &[(&str, u64)]) -> Value {
    let entry = |(index, (file, mib)): (usize, &(&str, u64))| {
        let at = json!({ "filename": format!("/app/{file}"), "line": index + 1, "name": "run" });
        let call = json!([
            at,
            { "filename": "/lib/torch/nn/modules/module.py", "line": 1, "name": "_call_impl" },
            { "filename": "/app/train.py", "line": 90, "name": "main" },
        ]);
        let frames = if *file == "model.py" { call } else { json!([at]) };
        let address = 0x7000_0000_0000_u64 + ((index as u64) << 36);
        let request = json!({ "addr": address, "size": mib << 20, "stream": 0, "frames": frames });
        ["segment_alloc", "alloc"].map(|action| {
            let mut entry = request.clone();
            entry["action"] = json!(action);
            entry
        })
    };
    let entries: Vec<Value> = requests.iter().enumerate().flat_map(entry).collect();
    let mut snapshot = rank_of_four(rank, &[]);
    let index = usize::try_from(device).unwrap();
    snapshot["device_traces"][index] = json!(entries);
    snapshot
}

/// The difference that is found between ranks with these recordings.
fn difference(snapshots: &[Value]) -> Value {
    let directory = TempDir::new().unwrap();
    for (index, snapshot) in snapshots.iter().enumerate() {
        written(&directory, &format!("rank{}-exit1.json", snapshot["oomscope"]["rank"].as_str().unwrap()), snapshot);
        assert_eq!(snapshot["oomscope"]["pid"], 100 + index);
    }
    let report = analyze(&[&text(directory.path())]);
    let rows = list(&report["ranks"]["rows"]);
    let mut found = report["ranks"]["difference"].clone();
    if found.is_null() {
        return found;
    }
    for key in ["rows", "foreign"] {
        let named =
            list(&found[key]).iter().map(|row| rows[usize::try_from(row.as_u64().unwrap()).unwrap()]["rank"].clone());
        found[key] = named.collect();
    }
    found
}

#[test]
fn the_cause_with_the_strongest_evidence_is_the_difference() {
    let of = |ranks: [&[(&str, u64)]; 4]| -> Value {
        let ranks: Vec<Value> =
            ranks.iter().enumerate().map(|(rank, requests)| recording(rank, rank as u64, requests)).collect();
        difference(&ranks)
    };
    let facts = |found: &Value| {
        let mib = |key: &str| found[key].as_u64().unwrap() >> 20;
        let line = found["location"]["frame"]["file"].as_str().unwrap_or_default().to_owned();
        (found["kind"].as_str().unwrap().to_owned(), found["rows"].to_string(), line, mib("bytes"), mib("peers_bytes"))
    };
    let usual: &[(&str, u64)] = &[("train.py", 20), ("model.py", 200)];
    // A larger input makes everything after it larger, too.
    let found = of([usual, usual, &[("train.py", 80), ("model.py", 800)], usual]);
    assert_eq!(facts(&found), ("input".into(), "[\"2\"]".into(), "/app/train.py".into(), 80, 20));
    assert_eq!(found["peers"], 3);
    let found = of([usual, &[("train.py", 20), ("model.py", 800)], usual, usual]);
    assert_eq!(facts(&found), ("routed".into(), "[\"1\"]".into(), "/app/model.py".into(), 800, 200));
    // An evaluation on one rank, in a step that is not like the others.
    let evaluates: &[(&str, u64)] = &[("train.py", 20), ("model.py", 200), ("eval.py", 80), ("model.py", 800)];
    let found = of([usual, usual, usual, evaluates]);
    assert_eq!(facts(&found).0, "line");
    // Nothing but a line of its own.
    let gathers: &[(&str, u64)] = &[("train.py", 20), ("model.py", 200), ("train.py", 500)];
    let found = of([gathers, usual, usual, usual]);
    assert_eq!(facts(&found), ("line".into(), "[\"0\"]".into(), "/app/train.py".into(), 500, 0));
    assert_eq!(of([usual; 4]), Value::Null);
}

/// Rank `rank` trains `program` of `fixtures/where`, with everything `times` as large.
fn training_rank(rank: usize, program: &str, times: u64) -> Value {
    fn scale(value: &mut Value, times: u64) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| scale(item, times)),
            Value::Object(members) => {
                for (key, value) in members {
                    let is_scaled = key.contains("size") || key.starts_with("addr");
                    match value.as_u64().filter(|_| is_scaled) {
                        Some(number) => *value = json!(number * times),
                        None => scale(value, times),
                    }
                }
            }
            _ => {}
        }
    }
    let mut snapshot = plain_json::recording(&format!("where/2.15.0-{program}"));
    scale(&mut snapshot, times);
    snapshot["oomscope"] = rank_of_four(rank, &[])["oomscope"].clone();
    snapshot["oomscope"]["host"] = json!(format!("node{rank}"));
    snapshot
}

#[test]
fn state_of_another_size_is_the_difference() {
    let of = |program: &str, times: [u64; 4]| {
        let ranks = times.iter().enumerate().map(|(rank, times)| training_rank(rank, program, *times));
        difference(&ranks.collect::<Vec<_>>())
    };
    for (program, times, kind, rows) in [
        ("masters", [1, 1, 4, 1], "parameters", json!(["2"])),
        ("masters", [1, 4, 1, 4], "parameters", json!(["1", "3"])),
        ("sam", [4, 1, 1, 1], "optimizer-state", json!(["0"])),
    ] {
        let found = of(program, times);
        assert_eq!((&found["kind"], &found["rows"]), (&json!(kind), &rows), "{found}");
        assert_eq!(found["peers"], times.iter().filter(|times| **times == 1).count());
    }
    assert_eq!(of("masters", [1; 4]), Value::Null);
}

#[test]
fn memory_on_the_gpu_of_another_rank_is_the_difference() {
    let usual: &[(&str, u64)] = &[("train.py", 20), ("model.py", 200)];
    let on =
        |device: fn(usize) -> u64| -> Vec<Value> { (0..4).map(|rank| recording(rank, device(rank), usual)).collect() };
    let found = difference(&on(|_| 0));
    assert_eq!((&found["kind"], &found["rows"]), (&json!("shared-gpu"), &json!(["0"])));
    assert_eq!(found["foreign"], json!(["1", "2", "3"]));
    let mut loaded = on(|rank| rank as u64);
    for snapshot in &mut loaded[1..] {
        snapshot["device_traces"][0] = recording(0, 0, &[("train.py", 100)])["device_traces"][0].clone();
    }
    let found = difference(&loaded);
    assert_eq!((&found["kind"], &found["rows"]), (&json!("foreign-memory"), &json!(["0"])));
    assert_eq!((&found["foreign"], found["bytes"].as_u64()), (&json!(["1", "2", "3"]), Some(300 << 20)));
    // With one visible device it may be any.
    for snapshot in &mut loaded {
        snapshot["oomscope"]["devices"] = json!([snapshot["oomscope"]["devices"][0]]);
    }
    assert_eq!(difference(&loaded), Value::Null);
}

#[test]
fn jobs_and_attempts_in_one_directory_are_told_apart() {
    let directory = TempDir::new().unwrap();
    let usual: &[(&str, u64)] = &[("train.py", 20), ("model.py", 200)];
    let write = |name: &str, rank: usize, command: &str, restarts: &str| {
        let mut snapshot = recording(rank, rank as u64, usual);
        let key = &mut snapshot["oomscope"];
        (key["argv"], key["restarts"]) = (json!([command, "--lr", "1"]), json!(restarts));
        key["pid"] = json!(name);
        for entry in snapshot["device_traces"][rank].as_array_mut().unwrap() {
            entry["time_us"] = json!(1000 + name.len());
        }
        written(&directory, &format!("rank{rank}-{name}.json"), &snapshot);
    };
    for rank in 0..2 {
        write("exit1", rank, "/app/train.py", "0");
        write("exit22", rank, "/app/train.py", "1");
    }
    let ranks = &analyze(&[&text(directory.path())])["ranks"];
    assert_eq!(ranks["attempts"], json!({ "shown": 2, "count": 2 }));
    assert!(list(&ranks["rows"]).iter().all(|row| row["path"].as_str().unwrap().ends_with("exit22.json")));
    write("x", 3, "/app/evaluate.py", "0");
    let ranks = &analyze(&[&text(directory.path())])["ranks"];
    assert_eq!(ranks["other_jobs"], json!([{ "command": "evaluate.py --lr 1", "ranks": 1, "failed": 0 }]));
    assert_eq!(list(&ranks["rows"]).len(), 2);
}

#[test]
fn equal_ranks_are_one_row() {
    let directory = TempDir::new().unwrap();
    for rank in 0..64 {
        let mib = if rank == 37 { 900 } else { 200 };
        let device = rank as u64 % 4;
        let mut snapshot = recording(rank, device, &[("train.py", 20), ("model.py", mib)]);
        snapshot["oomscope"]["host"] = json!(format!("node{}", rank / 4));
        written(&directory, &format!("rank{rank}-exit1.json"), &snapshot);
    }
    let page = result_of(&["analyze", &text(directory.path())]);
    assert!(page.lines().count() < 16, "{page}");
    let rows: Vec<&str> = page.lines().filter(|line| line.contains("no failure")).collect();
    assert_eq!(rows.len(), 2, "{page}");
    assert!(rows[0].contains("rank 37 on node9") && rows[1].contains("ranks 0 to 36 and 38 to 63"), "{page}");
}

#[test]
fn ranks_with_the_same_failure_are_one_group() {
    let paths =
        ["capacity", "capacity-expandable", "fragmentation"].map(|name| format!("fixtures/failures/{name}.pickle.gz"));
    let report = analyze(&paths.each_ref().map(String::as_str));
    let failures = report["ranks"]["failures"].as_array().unwrap();
    let told: Vec<(&str, usize)> =
        failures.iter().map(|of| (of["verdict"].as_str().unwrap(), of["rows"].as_array().unwrap().len())).collect();
    assert_eq!(told, [("capacity", 2), ("fragmentation", 1)]);
    let summary = report["ranks"]["summary"].as_str().unwrap();
    assert!(summary.starts_with("3 of 3 ran out of memory: 2 at "), "{summary}");
    assert!(summary.contains("fragmentation.pickle.gz (GPU 0) at "), "{summary}");
}

#[test]
fn a_table_of_many_ranks_is_bounded() {
    let directory = TempDir::new().unwrap();
    let snapshot = |rank: u64| devices(&[1 + rank]);
    let paths: Vec<String> =
        (0..300).map(|rank| written(&directory, &format!("rank{rank}.json"), &snapshot(rank))).collect();
    let lines = |top: &str| {
        let mut args = vec!["analyze", "--top", top];
        args.extend(paths.iter().map(String::as_str));
        result_of(&args).lines().count()
    };
    let (few, many) = (lines("10"), lines("100"));
    assert!(few < 60, "{few}");
    assert_eq!(many - few, 90);
}

#[test]
fn ranks_are_listed_worst_first_and_the_outlier_is_named() {
    let paths = [HOLES, CONV, OOM, ROUNDUP, STREAMS];
    let report = analyze(&paths);
    assert!(list(&report["snapshots"]).iter().map(|s| &s["path"]).eq(paths), "order as given");
    let rows = list(&report["ranks"]["rows"]);
    let badness = |r: &Value| (r["oom_count"] != 0, r["peak_reserved_bytes"].as_u64());
    assert!(rows.is_sorted_by(|a, b| badness(a) >= badness(b)), "{rows:?}");
    assert_eq!(rows[0]["path"], OOM);
    let outlier = usize::try_from(report["ranks"]["outlier"].as_u64().unwrap()).unwrap();
    assert_eq!(rows[outlier]["path"], ROUNDUP);
}

#[test]
fn a_directory_is_all_snapshots_below_it_and_other_json_is_passed_over() {
    let directory = TempDir::new().unwrap();
    let job = job(&directory);
    let ran = run(&["analyze", "--format", "json", &text(&job)]);
    assert_eq!((ran.code, ran.err.lines().count()), (0, 1), "{}", ran.err);
    assert!(ran.err.contains("skipped 2 .json files"), "{}", ran.err);
    let report: Value = crate::support::program::read_with_details(&ran.out);
    let paths: Vec<_> = list(&report["snapshots"]).iter().map(|s| s["path"].as_str().unwrap()).collect();
    let expected = ["node1/rank_2.pickle.gz", "rank_0.pickle.gz", "rank_1.PICKLE.gz"];
    assert_eq!(paths, expected.map(|name| text(&job.join(name))));
    assert_eq!(list(&report["ranks"]["rows"]).len(), 3);

    let alone = TempDir::new().unwrap();
    fs::copy(fixtures::directory().join("2.15.0-holes.stats.json"), alone.path().join("a.json")).unwrap();
    assert_eq!(run(&["analyze", &text(alone.path())]).code, 2, "nothing but other files");
}

#[test]
fn one_unreadable_file_does_not_hide_the_others() {
    let directory = TempDir::new().unwrap();
    let job = job(&directory);
    let broken = ["node1/rank_3.pickle", "rank_4.json"].map(|name| job.join(name));
    fs::write(&broken[0], &pickled(3, "x")[..100]).unwrap();
    fs::write(&broken[1], b"{\"segments\": [").unwrap();
    let ran = run(&["analyze", "--format", "json", &text(&job)]);
    let report: Value = crate::support::program::read_with_details(&ran.out);
    assert_eq!((ran.code, list(&report["snapshots"]).len()), (2, 3));
    let unreadable: Vec<_> = list(&report["unreadable"]).iter().map(|u| u["path"].as_str().unwrap()).collect();
    assert_eq!(unreadable, broken.each_ref().map(|path| text(path)));
    for format in ["human", "markdown"] {
        let ran = run(&["analyze", "--format", format, &text(&job)]);
        assert_eq!(ran.code, 2);
        assert!(ran.out.contains("rank 0") && ran.out.contains("rank 1"), "{}", ran.out);
        assert!(broken.iter().all(|path| ran.err.contains(&text(path))), "{}", ran.err);
    }
}

#[test]
fn snapshots_without_the_device_are_named() {
    let said = refusal(&["analyze", "--device", "7", HOLES, OOM, STREAMS]);
    assert!(said.contains("holes.pickle.gz and 2 other snapshots: no memory and no"), "{said}");
    let page = run(&["analyze", "--full", "--device", "1", HOLES, TWO_DEVICES]).out;
    assert!(page.contains("no-device: no memory and no trace of GPU 1"), "{page}");
    let ranks = run(&["analyze", "--device", "1", TWO_DEVICES, HOLES, TWO_DEVICES]);
    assert_eq!(ranks.code, 0);
    assert!(ranks.err.contains("holes.pickle.gz: no memory and no trace"), "{}", ranks.err);
    let whole = analyze(&[HOLES, "--device", "0"]);
    assert_eq!(whole["snapshots"][0]["warnings"], json!([]));
}
