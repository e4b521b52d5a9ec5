//! `oomscope plan --together`: processes that share a GPU.
//!
//! The recordings are of `tests/oracle/together.py`, whose coordinator then ran the same turns on a T4: process 0 failed at
//! a request of 1,178,097,664 bytes, and nothing failed under the fractions.

use std::fs::File;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::support::program::{refusal, result_of};

const PROCESSES: [&str; 2] = ["fixtures/together/2.15.0-0.pickle.gz", "fixtures/together/2.15.0-1.pickle.gz"];

fn together(processes: &[&str], gpus: &str) -> Value {
    let start = ["plan", "--format", "json", "--gpus", gpus, "--together"];
    let arguments: Vec<&str> = start.into_iter().chain(processes.iter().copied()).collect();
    serde_json::from_str(&result_of(&arguments)).unwrap()
}

#[test]
fn the_request_that_fails_is_the_one_that_really_failed() {
    let report = together(&PROCESSES, "t4,h200");
    let [t4, h200] = report["gpus"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(t4["fits_at_any_time"], false);
    let failed = &t4["as_timed"]["failed"];
    assert_eq!((&failed["process"], &failed["requested_bytes"]), (&json!(0), &json!(1_178_097_664_u64)));
    let fractions: Vec<f64> = serde_json::from_value(t4["fractions"].clone()).unwrap();
    let usable = t4["usable_bytes"].as_f64().unwrap() / (14_913.0 * 1024.0 * 1024.0);
    assert!(fractions.iter().sum::<f64>() <= usable, "{fractions:?} of {usable}");
    assert_eq!(h200["fits_at_any_time"], true);
    assert!(h200["as_timed"]["failed"].is_null() && h200["fractions"].is_null());
    // Two contexts of 110 MiB.
    assert_eq!(t4["usable_bytes"], (14_913_u64 - 2 * 110) << 20);
}

#[test]
fn the_peak_of_two_equal_processes_is_twice_that_of_one() {
    let report = together(&[PROCESSES[0]; 2], "h200");
    let [alone, same] = report["processes"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(alone, same);
    let peak = alone["peak_reserved_bytes"].as_u64().unwrap();
    assert_eq!(report["gpus"][0]["as_timed"]["peak_bytes"], 2 * peak);
    assert_eq!(report["gpus"][0]["as_timed"]["peak_by_process"], json!([peak, peak]));
}

#[test]
fn recordings_at_different_times_have_no_replay() {
    let report = together(&[PROCESSES[0], "fixtures/sizes/2.15.0-dense-4.pickle.gz"], "h100");
    assert_eq!((&report["clocks"], &report["gpus"][0]["as_timed"]), (&json!("apart"), &Value::Null));
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let process = PROCESSES[0];
    for (arguments, why) in [
        (vec!["plan", "--together", process], "two processes or more"),
        (vec!["plan", "--together", process, "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz"], "no trace"),
    ] {
        assert!(refusal(&arguments).contains(why), "{arguments:?}: {}", refusal(&arguments));
    }
}

/// A failed request of a recording, on a device of 8 GiB that had nothing else; then the same with a device of 9 GiB.
#[test]
fn memory_outside_pytorch_is_that_of_the_failed_request() {
    let recorded = "fixtures/recorded/ranks/rank1-oom1.pickle.gz";
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(recorded).unwrap()).read_to_end(&mut bytes).unwrap();
    let [eight, nine] = [8_u64 << 30, 9 << 30].map(|total| [&[0x8a, 5], &total.to_le_bytes()[..5]].concat());
    let mut larger = Vec::new();
    while let Some(at) = bytes.windows(eight.len()).position(|window| window == eight) {
        larger.extend(bytes.drain(..at));
        larger.extend(&nine);
        bytes.drain(..eight.len());
    }
    larger.append(&mut bytes);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, larger).unwrap();
    let larger = file.path().to_str().unwrap();
    let report = together(&[recorded, larger], "a100");
    assert_eq!([0, 1].map(|process| &report["processes"][process]["outside_bytes"]), [&json!(0), &json!(1 << 30)]);
    let page = result_of(&["plan", "--together", recorded, larger, "--gpus", "a100", "--wide", "--full"]);
    assert_eq!(page.matches("in use outside the allocator").count(), 1, "{page}");
}
