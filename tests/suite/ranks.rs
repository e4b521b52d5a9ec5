//! Several devices side by side: of one snapshot, or of the ranks of a job.

use crate::support::program::{analyze, file, result_of};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A snapshot, as JSON, of devices that hold so many GiB each, all allocated in `function`.
fn devices(gib: &[u64], function: &str) -> Value {
    let frames = json!([{ "filename": "/app/train.py", "line": 7, "name": function }]);
    let segment = |(device, gib): (usize, &u64)| {
        let bytes = gib << 30;
        let block = json!({
            "address": 0x7000_0000_0000_u64, "size": bytes, "requested_size": bytes,
            "state": "active_allocated", "frames": frames,
        });
        json!({
            "device": device, "address": 0x7000_0000_0000_u64, "total_size": bytes,
            "allocated_size": bytes, "active_size": bytes, "requested_size": bytes, "stream": 0,
            "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false,
            "frames": [], "blocks": [block],
        })
    };
    let segments: Vec<Value> = gib.iter().enumerate().map(segment).collect();
    json!({ "segments": segments, "device_traces": gib.iter().map(|_| json!([])).collect::<Vec<_>>() })
}

fn written(directory: &TempDir, name: &str, snapshot: &Value) -> String {
    file(directory, name, snapshot.to_string().as_bytes())
}

#[test]
fn devices_of_one_snapshot_stand_side_by_side_the_worst_first() {
    let directory = TempDir::new().unwrap();
    let path = written(&directory, "a.json", &devices(&[8, 78, 20], "train"));
    let report = analyze(&[&path]);
    let order: Vec<u64> = report["ranks"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["device"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [1, 2, 0]);
    let page = result_of(&["analyze", &path]);
    assert!(page.contains("none ran out of memory; device 1 stands out"), "{page}");
    assert!(!page.contains("DataParallel"));
    let memory = |device: u64| page.find(&format!("Memory of device {device}")).unwrap();
    assert!(memory(1) < memory(2) && memory(2) < memory(0), "{page}");
}

#[test]
fn data_parallel_is_named_where_its_devices_are_unlike() {
    let directory = TempDir::new().unwrap();
    let unlike = written(&directory, "a.json", &devices(&[8, 78, 20], "parallel_apply"));
    let alike = written(&directory, "b.json", &devices(&[20, 20, 20], "parallel_apply"));
    assert!(result_of(&["analyze", &unlike]).contains("DataParallel"));
    assert!(!result_of(&["analyze", &alike]).contains("DataParallel"));
}

#[test]
fn ranks_that_fail_alike_are_one_group() {
    let paths = ["capacity", "capacity-expandable", "fragmentation"]
        .map(|name| format!("fixtures/failures/{name}.pickle.gz"));
    let report = analyze(&paths.each_ref().map(String::as_str));
    let failures = report["ranks"]["failures"].as_array().unwrap();
    let told: Vec<(&str, usize)> = failures
        .iter()
        .map(|of| (of["verdict"].as_str().unwrap(), of["rows"].as_array().unwrap().len()))
        .collect();
    assert_eq!(told, [("capacity", 2), ("fragmentation", 1)]);
    let summary = report["ranks"]["summary"].as_str().unwrap();
    assert!(summary.starts_with("3 of 3 ran out of memory: 2 at "), "{summary}");
    assert!(summary.contains("fragmentation.pickle.gz (device 0) at "), "{summary}");
}

#[test]
fn snapshots_of_one_process_count_once() {
    let directory = TempDir::new().unwrap();
    let copy = directory.path().join("again.pickle.gz");
    let (first, other) =
        ("fixtures/2.15.0-holes-at-oom.pickle.gz", "fixtures/2.15.0-conv_train.pickle.gz");
    std::fs::copy(first, &copy).unwrap();
    let report = analyze(&[first, other, copy.to_str().unwrap()]);
    assert_eq!(report["snapshots"].as_array().unwrap().len(), 3);
    assert_eq!(report["ranks"]["rows"].as_array().unwrap().len(), 2);
    assert_eq!(report["ranks"]["earlier_dumps"], 1);
}

#[test]
fn a_table_of_many_ranks_is_bounded() {
    let directory = TempDir::new().unwrap();
    let snapshot = devices(&[1], "train");
    let paths: Vec<String> =
        (0..300).map(|rank| written(&directory, &format!("rank{rank}.json"), &snapshot)).collect();
    let lines = |top: &str| {
        let mut args = vec!["analyze", "--top", top];
        args.extend(paths.iter().map(String::as_str));
        result_of(&args).lines().count()
    };
    let (few, many) = (lines("10"), lines("100"));
    assert!(few < 60, "{few}");
    assert_eq!(many - few, 90);
}
