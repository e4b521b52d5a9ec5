//! Serving engines beside training, in snapshots of one program (tests/oracle/colocated.py).

use serde_json::{Value, json};

use crate::pages::assert_fits;
use crate::support::made;
use crate::support::program::{analyze, run};

const GIB: f64 = (1u64 << 30) as f64;

fn path(name: &str) -> String {
    format!("fixtures/engines/2.14.0-colocated-{name}.pickle.gz")
}

fn device(name: &str) -> Value {
    analyze(&[&path(name)])["snapshots"][0]["devices"][0].clone()
}

fn gib(bytes: &Value) -> f64 {
    bytes.as_f64().unwrap() / GIB
}

/// Bytes by engine and category.
fn held(breakdown: &Value) -> Vec<(Option<String>, String, f64)> {
    let rows = breakdown["by_engine"].as_array().unwrap().iter().flat_map(|row| {
        let engine = row["engine"].as_str().map(str::to_owned);
        let parts = row["by_category"].as_array().unwrap().iter();
        parts.map(move |part| (engine.clone(), part["category"].as_str().unwrap().to_owned(), gib(&part["bytes"])))
    });
    rows.collect()
}

#[test]
fn each_sleep_shows_what_the_device_holds() {
    let sleep = &device("sleep")["sleep"];
    let changes = sleep["changes"].as_array().unwrap();
    let calls: Vec<&str> = changes.iter().map(|change| change["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["sleep", "wake-up", "sleep", "wake-up", "sleep", "snapshot"]);
    // "Sleep mode freed 47.01 GiB memory", and how much was still in use, in vLLM's own log of this run.
    let asleep: Vec<&Value> = changes.iter().filter(|change| change["call"] == "sleep").collect();
    let first = gib(&asleep[0]["on_device_bytes"]);
    for (change, in_use) in asleep.iter().zip([0.56, 0.63, 2.73]) {
        assert!((gib(&change["asleep_bytes"]) - 47.01).abs() < 0.005, "{change}");
        assert!((gib(&change["on_device_bytes"]) - first - (in_use - 0.56)).abs() < 0.01, "{change}");
    }
    for change in changes.iter().filter(|change| change["call"] == "wake-up") {
        assert_eq!(change["asleep_bytes"], 0);
        assert_eq!(change["allocated"][0][0], "vLLM");
    }
}

#[test]
fn memory_asleep_is_not_on_the_device() {
    let device = device("sleep");
    let (peak, on_device) = (gib(&device["peak"]["reserved_bytes"]), gib(&device["sleep"]["peak_on_device_bytes"]));
    assert!(peak > 55.0 && on_device < 49.5, "{peak} {on_device}");
    // The breakdown is that of the peak on the device, when vLLM is awake and the trainer's cache is left.
    assert_eq!(device["at_peak"]["event"], device["sleep"]["peak_event"]);
    let page = run(&["analyze", &path("sleep")]).out;
    assert_fits("engines", &page, 100);
    assert!(page.contains("up to 49.2 GiB at the peak"), "{page}");
    assert!(page.contains("would fit"), "{page}");
}

#[test]
fn an_engine_that_stays_awake_goes_to_sleep() {
    let device = device("awake-oom");
    let failure = &device["ooms"][0];
    let rows = held(&failure["held"]);
    assert_eq!((rows[0].0.as_deref(), &*rows[0].1), (Some("vLLM"), "kv-cache"));
    assert!((rows[0].2 - 46.77).abs() < 0.005, "as in vLLM's log: {}", rows[0].2);
    // With the calls, the same program trains on: tests/oracle/colocated.py.
    let page = run(&["analyze", &path("awake-oom")]).out;
    assert_fits("engines", &page, 100);
    assert!(page.contains("copy    llm.sleep()"), "{page}");
    assert!(page.contains("let vLLM sleep") && page.contains("would not fit"), "it is no server: {page}");
}

#[test]
fn stacks_alone_give_categories_without_a_trace() {
    let device = device("no-history");
    assert_eq!(device["at_peak"], Value::Null);
    let rows = held(&device["at_moment"]);
    assert_eq!((rows[0].0.as_deref(), &*rows[0].1), (Some("vLLM"), "kv-cache"));
    // "74.0 MiB weights", as vLLM counts them; its buffers for sampling take more of their pool.
    let is_weight = |row: &&(Option<String>, String, f64)| row.0.as_deref() == Some("vLLM") && row.1 == "parameters";
    let weights = rows.iter().find(is_weight).unwrap().2 * 1024.0;
    assert!((weights - 74.0).abs() < 0.5, "{weights}");
    let page = run(&["analyze", &path("no-history")]).out;
    assert!(page.contains("keep 47.0 GiB for KV cache;"), "{page}");
}

/// Nothing but its stack says what a block is for.
#[test]
fn a_block_without_stack_and_trace_has_no_category() {
    let size: u64 = 64 << 20;
    let cache = made::frames(&[("/venv/site-packages/vllm/worker/cache_engine.py", 1, "_allocate_kv_cache")]);
    let blocks = [made::live(size, size, &json!([])), made::live(2 * size, size, &cache)];
    let answer = made::analyzed(&made::snapshot(&[made::segment(0, &blocks)], &[Vec::new()]), &[]);
    let breakdown = &answer["snapshots"][0]["devices"][0]["at_moment"];
    let rows = breakdown["by_category"].as_array().unwrap().iter();
    let found: Vec<(&str, u64)> =
        rows.map(|row| (row["category"].as_str().unwrap(), row["bytes"].as_u64().unwrap())).collect();
    assert_eq!(found, [("kv-cache", size), ("other", size)]);
}

#[test]
fn the_limit_on_splits_while_vllm_loads_is_inferred() {
    for name in ["sleep", "awake-oom"] {
        let page = run(&["replay", &path(name)]).out;
        assert!(page.starts_with("reproduced: all"), "{page}");
    }
}
