//! `oomscope analyze --request`: one more request, asked of the memory as the snapshot has it.
//! Slow: many runs of the program.

use crate::support::program;
use crate::support::program::{analyze, result_of};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const NO_HISTORY: &str = "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz";
const AT_OOM: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

fn request(args: &[&str]) -> Value {
    let report = analyze(args);
    report["snapshots"][0]["devices"][0]["request"].clone()
}

#[test]
fn the_recorded_request_fails_again_for_the_same_reason() {
    // Its next requests fail too, which is not asked of a request that is tried.
    let report = analyze(&["--request", "418535424", AT_OOM]);
    let device = &report["snapshots"][0]["devices"][0];
    let (asked, recorded) = (&device["request"], &device["ooms"][0]);
    for key in [
        "requested_bytes",
        "segment_bytes",
        "stream",
        "device_free_bytes",
        "reserved_bytes",
        "allocated_bytes",
        "cached_bytes",
        "largest_free_block_bytes",
        "shortfall_bytes",
        "causes",
        "blockers",
    ] {
        assert_eq!(asked[key], recorded[key], "{key}");
    }
    assert_eq!(asked["served_from"], Value::Null);
}

#[test]
fn a_free_block_that_fits_serves_it() {
    let asked = request(&["--request", "80MiB", AT_OOM]);
    assert_eq!((&asked["verdict"], &asked["asked_bytes"]), (&json!("served"), &json!(80 * MIB)));
    let from = &asked["served_from"];
    let report = analyze(&[AT_OOM]);
    let streams = &report["snapshots"][0]["devices"][0]["streams"];
    assert_eq!(from["kind"], "free-block");
    assert_eq!(from["bytes"], streams[0]["largest_free_block_bytes"], "the only one as large");
    assert!(from["address"].is_u64());
}

#[test]
fn without_a_trace_the_cache_is_released_first() {
    let asked = request(&["--request", "2GiB", NO_HISTORY]);
    assert_eq!(asked["verdict"], "served");
    assert_eq!(asked["served_from"]["kind"], "new-memory");
    let back = asked["given_back_bytes"].as_u64().unwrap();
    assert!(back >= 2048 * MIB, "{back}");
    let report = analyze(&[NO_HISTORY]);
    let releasable = &report["snapshots"][0]["devices"][0]["fragmentation"]["releasable_bytes"];
    assert_eq!(asked["given_back_bytes"], *releasable, "as empty_cache() would");
    // With room on the device nothing has to be given back.
    let asked = request(&["--request", "2GiB", "--capacity", "40GiB", NO_HISTORY]);
    assert_eq!(asked["given_back_bytes"], 0);
}

#[test]
fn without_a_trace_a_failure_has_its_verdict() {
    let asked = request(&["--request", "3GiB", NO_HISTORY]);
    assert_eq!(asked["verdict"], "unknown", "the size of the device is unknown: {asked}");
    let asked = request(&["--request", "3GiB", "--capacity", "2500MiB", NO_HISTORY]);
    assert_eq!(asked["verdict"], "capacity", "{asked}");
    let asked = request(&["--request", "3GiB", "--capacity", "4GiB", NO_HISTORY]);
    assert_eq!(asked["verdict"], "served");
    let page = result_of(&["analyze", "--request", "3GiB", "--capacity", "2500MiB", NO_HISTORY]);
    assert!(page.contains("3 GiB more on GPU 0 would fail"), "{page}");
    let page = result_of(&["analyze", "--request", "3GiB", NO_HISTORY]);
    assert!(page.contains("no snapshot records it, so give --capacity") && page.contains("is not known"), "{page}");
}

#[test]
fn every_device_gets_the_request() {
    let report = analyze(&["--request", "1MiB", "fixtures/2.15.0-two_devices.pickle.gz"]);
    let devices = report["snapshots"][0]["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 2);
    assert!(devices.iter().all(|device| device["request"]["verdict"] == "served"));
}

#[test]
fn a_request_that_cannot_be_is_refused() {
    let ran = program::run(&["analyze", "--request", "0", AT_OOM]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("larger than 0"), "{}", ran.err);
    // As large as a number can be: no panic, and no memory.
    let asked = request(&["--request", "18446744073709551615", AT_OOM]);
    assert_eq!(asked["verdict"], "capacity");
}

#[test]
fn a_request_can_be_made_at_any_moment() {
    const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
    let capacity = ["--capacity", "1GiB"];
    let ask = |bytes: &str, at: &[&str]| request(&[&["--request", bytes], at, &capacity, &[HOLES]].concat());
    let entries = analyze(&[HOLES])["snapshots"][0]["events"].as_u64().unwrap();
    let last = (entries - 1).to_string();
    for bytes in ["1MiB", "64MiB", "900MiB"] {
        assert_eq!(ask(bytes, &["--at", &last]), ask(bytes, &[]), "the end is the snapshot");
    }
    let early = ask("900MiB", &["--at", "1"]);
    assert_eq!((&early["event"], &early["verdict"]), (&json!(2), &json!("served")), "{early}");
    let page = result_of(&["analyze", "--request", "3GiB", "--at", "peak", AT_OOM]);
    assert!(page.contains("at the peak of allocated memory (entry "), "{page}");
}
