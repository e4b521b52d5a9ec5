//! Recordings that began late, made of whole ones of one device with expandable segments.
#![allow(dead_code, unreachable_pub)] // every test takes what it needs

use tempfile::TempDir;

use super::{plain_json, program};

/// The recording without the first half of its trace.
pub fn half(directory: &TempDir, name: &str) -> String {
    let mut recording = plain_json::recording(name);
    let trace = recording["device_traces"][0].as_array_mut().unwrap();
    trace.drain(..trace.len() / 2);
    program::file(directory, "late.json", recording.to_string().as_bytes())
}
