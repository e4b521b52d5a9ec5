//! `oomscope whatif --program`: what it says of a change is what PyTorch's allocator did when the program was changed
//! so. The programs and the changes are those of `tests/oracle/changed.py`. Slow: changed programs are replayed.

use serde_json::Value;

use crate::support::program::{json_of, result_of};

/// What PyTorch measured.
fn truth(program: &str, change: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string("fixtures/changes/truth.json").unwrap();
    let facts: Value = serde_json::from_str(&text).unwrap();
    facts[program][change][key].as_u64().unwrap()
}

fn report(file: &str, more: &[&str]) -> Value {
    json_of(&[&["whatif", "--program", file], more].concat())
}

fn device(file: &str) -> Value {
    report(file, &[])["program"][0].clone()
}

fn recorded(program: &str) -> Value {
    device(&format!("fixtures/changes/2.15.0-{program}.pickle.gz"))
}

/// The row of `change` that gains most.
fn row<'d>(device: &'d Value, change: &str) -> Option<&'d Value> {
    let rows = device["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["change"] == change).max_by_key(|row| row["allocated_gain_bytes"].as_i64())
}

fn bytes(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap()
}

/// By how many thousandths of the truth a row is off.
fn off(row: &Value, program: &str, change: &str) -> u64 {
    let true_bytes = truth(program, change, "peak_allocated");
    bytes(row, "peak_allocated_bytes").abs_diff(true_bytes) * 1000 / true_bytes
}

#[test]
fn a_program_that_is_not_changed_is_as_recorded() {
    for program in ["dense", "after", "small", "zeros", "kept", "amp"] {
        let plain = recorded(program)["as_recorded"].clone();
        let is = |key| truth(program, "none", key);
        assert_eq!(bytes(&plain, "peak_allocated_bytes"), is("peak_allocated"), "{program}");
        assert_eq!(bytes(&plain, "peak_reserved_bytes"), is("peak_reserved"), "{program}");
        assert_eq!((&plain["allocated_gain_bytes"], &plain["sure"]), (&0.into(), &"checked".into()));
    }
}

#[test]
fn checkpointed_modules_need_as_much_as_in_the_allocator() {
    for program in ["dense", "after", "amp"] {
        let device = recorded(program);
        let row = row(&device, "checkpoint").unwrap();
        assert_eq!(row["what"], "checkpoint each of 6 calls");
        assert_eq!(row["sure"], "should");
        assert!(off(row, program, "checkpoint") <= 2, "{program}: {row}");
        let reserved = truth(program, "checkpoint", "peak_reserved");
        let said = bytes(row, "peak_reserved_bytes");
        assert!(said.abs_diff(reserved) * 50 <= reserved, "{program}: {said} for {reserved}");
    }
}

#[test]
fn the_modules_of_a_helper_are_checkpointed_together() {
    let device = recorded("levels");
    let row = row(&device, "checkpoint").unwrap();
    assert_eq!(row["what"], "checkpoint each of 6 calls", "three on each way of a U-Net");
    assert!(row["frame"]["file"].as_str().unwrap().ends_with("changed.py"), "{row}");
    assert_eq!(row["other_locations"].as_array().unwrap().len(), 0, "one line calls them all: {row}");
    assert!(off(row, "levels", "checkpoint") <= 35, "{row}");
}

/// Each row against the program with another optimizer, other numbers or half the batch; in thousandths.
#[test]
fn other_changes_need_as_much_as_in_the_allocator() {
    for (program, change, is, most) in [
        ("dense", "half-batch", "halves", 10),
        ("after", "half-batch", "halves", 15),
        ("dense", "half-precision", "half", 40),
        ("small", "half-precision", "half", 1),
        ("dense", "optimizer-temporaries", "loop", 0),
        ("dense", "optimizer-foreach", "loop", 1),
        ("small", "optimizer-temporaries", "fused", 1),
        ("dense", "state-offloaded", "offload", 0),
        ("small", "state-offloaded", "offload", 0),
        ("after", "state-offloaded", "offload", 0),
        ("zeros", "state-offloaded", "offload", 0),
        ("kept", "left-behind", "dropped", 0),
    ] {
        let device = recorded(program);
        let row = row(&device, change).unwrap_or_else(|| panic!("{program}: no {change}"));
        assert!(off(row, program, is) <= most, "{program}, {change}: {row}");
    }
}

/// What is left behind is between the peaks: it keeps memory reserved, not more allocated.
#[test]
fn memory_that_a_step_leaves_behind_is_reserved() {
    let device = recorded("kept");
    let row = row(&device, "left-behind").unwrap();
    assert_eq!(bytes(row, "peak_reserved_bytes"), truth("kept", "dropped", "peak_reserved"));
    assert!(bytes(row, "peak_reserved_bytes") < truth("kept", "none", "peak_reserved"));
}

/// The program with `zero_grad()` after the forward pass, against the same with it before.
#[test]
fn gradients_are_freed_before_the_forward_pass() {
    let recorded = |program: &str| device(&format!("fixtures/changes/2.11.0-zero_grad_{program}.pickle.gz"));
    let (late, early) = (recorded("late"), recorded("early"));
    let freed = row(&late, "gradients-freed").unwrap();
    for peak in ["peak_allocated_bytes", "peak_reserved_bytes"] {
        assert_eq!(freed[peak], early["as_recorded"][peak], "{peak}");
        assert!(bytes(freed, peak) < bytes(&late["as_recorded"], peak), "{peak}");
    }
    assert_eq!(row(&early, "gradients-freed"), None);
}

#[test]
fn no_row_is_given_without_a_reason() {
    let has = |program: &str, change: &str| row(&recorded(program), change).is_some();
    assert!(!has("dense", "left-behind"), "nothing is left");
    assert!(!has("zeros", "left-behind"), "gradients are not left behind");
    assert!(!has("zeros", "gradients-freed"), "backward passes add to them");
    assert!(!has("amp", "half-precision"), "numbers are of half precision already");
    let inference = device("fixtures/where/2.15.0-decode.pickle.gz");
    for row in inference["rows"].as_array().unwrap() {
        assert_ne!(row["change"], "checkpoint", "{row}");
    }
    let none = device("fixtures/2.15.0-holes-at-oom.pickle.gz");
    assert_eq!(none["rows"].as_array().unwrap().len(), 0);
    let page = result_of(&["whatif", "--program", "fixtures/2.15.0-holes-at-oom.pickle.gz"]);
    assert!(page.contains("nothing to try on GPU 0"), "{page}");
}

/// The program was really checkpointed on a device as large: it runs, and needs 228 MiB.
#[test]
fn a_failure_that_checkpointing_avoids() {
    let device = recorded("dense-320MiB");
    assert_eq!((&device["goes_on"], &device["as_recorded"]["fits"]), (&true.into(), &false.into()));
    let row = row(&device, "checkpoint").unwrap();
    assert_eq!((&row["fits"], &row["serves_failed"]), (&true.into(), &true.into()));
    let idle = self::row(&device, "optimizer-temporaries").unwrap();
    assert_eq!(idle["serves_failed"], false, "{idle}");
    let page = result_of(&["analyze", "fixtures/changes/2.15.0-dense-320MiB.pickle.gz"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let action = "do checkpoint each of 6 calls (changed.py:25): in a replay this request is then served; what follows is not known";
    assert!(page.contains(action), "{page}");
}

/// The first forward pass fails: what the backward pass keeps is not known, and what it would need neither.
#[test]
fn a_failure_in_the_first_pass_is_a_guess() {
    let device = recorded("dense-150MiB");
    assert_eq!((&device["ends_in_failure"], &device["goes_on"]), (&true.into(), &false.into()));
    let row = row(&device, "checkpoint").unwrap();
    assert_eq!((&row["sure"], &row["fits"]), (&"estimate".into(), &true.into()));
    let page = result_of(&["whatif", "--program", "fixtures/changes/2.15.0-dense-150MiB.pickle.gz"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("~ checkpoint each of 3 calls") && page.contains("not known"), "{page}");
    assert!(page.contains("try it, and record again: checkpoint each of 3 calls"), "{page}");
}

/// Recordings of all kinds: streams, several devices, late beginnings, pools, failures in the middle.
#[test]
fn any_recording_gets_an_answer() {
    for name in [
        "2.15.0-fuzz_streams-oom-lag",
        "2.15.0-two_devices",
        "2.15.0-gpt_varlen-late",
        "2.15.0-gpt_varlen-wrapped",
        "2.15.0-graphs-expandable",
        "2.9.1-oom_varlen-expandable-at-oom",
        "2.1.2-fuzz-max_split-oom",
    ] {
        let file = format!("fixtures/{name}.pickle.gz");
        for capacity in [&[][..], &["--capacity", "2GiB"]] {
            let report = report(&file, capacity);
            let plain = &report["program"][0]["as_recorded"];
            assert_eq!(plain["fits"].is_null(), report["devices"][0]["capacity_bytes"].is_null(), "{name}");
        }
    }
}
