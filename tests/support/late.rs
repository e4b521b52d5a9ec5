//! Recordings that began late, or that a failed request ends, made of whole ones.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use oomscope::output::export::{Recording, write_window};
use oomscope::study::{Bound, Scope, Study, Window};
use serde_json::json;
use tempfile::TempDir;

use super::{fixtures, plain_json, program};

/// The recording of one device, with expandable segments, without the first half of its trace.
pub fn half(directory: &TempDir, name: &str) -> String {
    let mut recording = plain_json::recording(name);
    let trace = recording["device_traces"][0].as_array_mut().unwrap();
    trace.drain(..trace.len() / 2);
    program::file(directory, "late.json", recording.to_string().as_bytes())
}

/// The entries of the recording in the window.
fn part(name: &str, from: Option<Bound>, to: Option<Bound>) -> Vec<u8> {
    let snapshot = fixtures::snapshot(name);
    let study = Study::new(&snapshot, Scope { window: Window { from, to }, ..Scope::default() });
    let mut pickle = Vec::new();
    write_window(&Recording::new(&study, "a"), &mut pickle).unwrap();
    pickle
}

/// So many thirds of the entries up to the peak.
fn up_to_peak(name: &str, thirds: u64) -> Vec<u8> {
    let snapshot = fixtures::snapshot(name);
    let peak = Study::new(&snapshot, Scope::default()).devices().next().unwrap().peak().allocated_event;
    let to = peak.map_or(Bound::BeforeEnd(0), |peak| Bound::Entry(((peak + 1) * thirds).div_ceil(3)));
    part(name, None, Some(to))
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
pub fn made(cut: &str, name: &str) -> Option<Vec<u8>> {
    let last = |entries| Some(Bound::BeforeEnd(entries));
    Some(match cut {
        "early" => up_to_peak(name, 2),
        "peak" => with_failure(&up_to_peak(name, 3)),
        "last" => part(name, last(300), None),
        "failed" => with_failure(&part(name, last(300), last(40))),
        _ => return None,
    })
}
