//! `oomscope plan --together`: processes that share a GPU.
//!
//! The recordings are of `tests/oracle/together.py`, whose coordinator then ran the same turns on a T4: process 0 failed at
//! a request of 1,178,097,664 bytes, and nothing failed under the fractions.

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
        (vec!["plan", "--together", process, process, "--format", "html"], "no page for a browser"),
        (vec!["plan", "--together", process, "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz"], "no trace"),
    ] {
        assert!(refusal(&arguments).contains(why), "{arguments:?}: {}", refusal(&arguments));
    }
}
