//! Recordings that began late, or that a failed request ends, made of whole ones.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use serde_json::json;
use tempfile::TempDir;

use super::{plain_json, program};

/// The recording of one device, with expandable segments, without the first half of its trace.
pub fn half(directory: &TempDir, name: &str) -> String {
    let mut recording = plain_json::recording(name);
    let trace = recording["device_traces"][0].as_array_mut().unwrap();
    trace.drain(..trace.len() / 2);
    program::file(directory, "late.json", recording.to_string().as_bytes())
}

/// The entries of the recording in the window that these options of `export` choose.
fn part(directory: &TempDir, name: &str, window: &[&str]) -> Vec<u8> {
    let (recording, part) = (format!("fixtures/{name}.pickle.gz"), directory.path().join("part.pickle"));
    let output = ["export", &recording, "--format", "pickle", "-o", part.to_str().unwrap()];
    program::run(&[&output[..], window].concat());
    std::fs::read(part).unwrap()
}

/// So many thirds of the entries up to the peak.
fn up_to_peak(directory: &TempDir, name: &str, thirds: u64) -> Vec<u8> {
    let report = program::analyze(&[&format!("fixtures/{name}.pickle.gz")]);
    let peak = report["snapshots"][0]["devices"][0]["peak"]["allocated_event"].as_u64();
    let to = peak.map_or("end-0".to_owned(), |peak| ((peak + 1) * thirds).div_ceil(3).to_string());
    part(directory, name, &["--to", &to])
}

/// The same, and a request for as much as is reserved fails. It is made like the last one.
fn with_failure(pickle: &[u8]) -> Vec<u8> {
    let mut recording = plain_json::of_pickle(pickle);
    let segments = recording["segments"].as_array().unwrap().iter();
    let reserved: u64 = segments.map(|segment| segment["total_size"].as_u64().unwrap()).sum();
    let trace = recording["device_traces"][0].as_array_mut().unwrap();
    let mut failed = trace.iter().rfind(|entry| entry["action"] == "alloc").or(trace.last()).unwrap().clone();
    (failed["action"], failed["size"]) = (json!("oom"), json!(reserved));
    (failed["device_free"], failed["addr"]) = (json!(reserved / 2), json!(0));
    trace.push(failed);
    recording.to_string().into_bytes()
}

/// The recording `name` cut as `cut` says; `None` for other words.
pub fn made(cut: &str, directory: &TempDir, name: &str) -> Option<Vec<u8>> {
    Some(match cut {
        "early" => up_to_peak(directory, name, 2),
        "peak" => with_failure(&up_to_peak(directory, name, 3)),
        "last" => part(directory, name, &["--from", "end-300"]),
        "failed" => with_failure(&part(directory, name, &["--from", "end-300", "--to", "end-40"])),
        _ => return None,
    })
}
