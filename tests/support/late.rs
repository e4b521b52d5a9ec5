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

/// The last entries of the recording, but for `omitted` of them.
fn part(directory: &TempDir, name: &str, omitted: &str) -> Vec<u8> {
    let (recording, part) = (format!("fixtures/{name}.pickle.gz"), directory.path().join("part.pickle"));
    let window = ["--from", "end-300", "--to", &format!("end-{omitted}")];
    let output = ["export", &recording, "--format", "pickle", "-o", part.to_str().unwrap()];
    program::run(&[&output[..], &window].concat());
    std::fs::read(part).unwrap()
}

pub fn last(directory: &TempDir, name: &str) -> Vec<u8> {
    part(directory, name, "0")
}

/// A request for as much as is reserved fails before the end. It is made like the last one.
pub fn failed(directory: &TempDir, name: &str) -> Vec<u8> {
    let mut recording = plain_json::of_pickle(&part(directory, name, "40"));
    let segments = recording["segments"].as_array().unwrap().iter();
    let reserved: u64 = segments.map(|segment| segment["total_size"].as_u64().unwrap()).sum();
    let trace = recording["device_traces"][0].as_array_mut().unwrap();
    let mut failed = trace.iter().rfind(|entry| entry["action"] == "alloc").unwrap().clone();
    (failed["action"], failed["size"]) = (json!("oom"), json!(reserved));
    (failed["device_free"], failed["addr"]) = (json!(reserved / 2), json!(0));
    trace.push(failed);
    recording.to_string().into_bytes()
}
