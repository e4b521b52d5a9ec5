//! What is looked at: one device, a part of the trace, a known capacity, so many rows.

use crate::support::program::{analyze, refusal, result_of, run};
use crate::support::schema::{list, sum};
use oomscope::base::units;

const HOLES: &str = "fixtures/2.15.0-holes.pickle.gz";
const OOM: &str = "fixtures/2.15.0-holes-at-oom.pickle.gz";
const TWO_DEVICES: &str = "fixtures/2.15.0-two_devices.pickle.gz";
const MAIN_EXAMPLE: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";

#[test]
fn device_shows_only_that_device() {
    let whole = analyze(&[TWO_DEVICES]);
    let devices = list(&whole["snapshots"][0]["devices"]);
    assert_eq!(devices.len(), 2);
    for device in devices {
        let number = device["device"].to_string();
        let one = analyze(&[TWO_DEVICES, "--device", &number]);
        assert_eq!(list(&one["snapshots"][0]["devices"]), std::slice::from_ref(device));
    }
    assert!(refusal(&["analyze", TWO_DEVICES, "--device", "2"]).contains("GPU 2"));
    let page = result_of(&["analyze", TWO_DEVICES, "--device", "1"]);
    assert!(page.contains("GPU 1") && !page.contains("GPU 0"), "{page}");
}

#[test]
fn a_part_of_the_trace_can_be_chosen_and_an_impossible_one_is_refused() {
    let peak = |args: &[&str]| {
        let report = analyze(&[&[HOLES], args].concat());
        report["snapshots"][0]["devices"][0]["peak"]["allocated_event"].clone()
    };
    let whole = peak(&[]);
    assert_eq!(peak(&["--from", "10", "--to", "220"]), whole);
    assert!(peak(&["--to", "50"]).as_u64() < whole.as_u64());
    assert!(peak(&["--from", "end-3"]).as_u64() >= Some(221), "entries keep their numbers");
    assert!(refusal(&["analyze", HOLES, "--from", "9", "--to", "9"]).contains("leaves no entry"));
    assert!(result_of(&["analyze", "--full", OOM, "--from", "500"]).contains("empty-window: "));
    assert!(!result_of(&["analyze", "--full", OOM, "--from", "end-1"]).contains("empty-window: "));
    for args in [&["--from", "last-3"][..], &["--to", "failure3"], &["--from", "end+1"]] {
        assert_eq!(run(&[&["analyze", HOLES], args].concat()).code, 2, "{args:?}");
    }
}

#[test]
fn with_the_capacity_known_memory_outside_pytorch_is_reported() {
    // The device of this recording had 480 MiB.
    let causes = |capacity: &str| {
        let report = analyze(&[OOM, "--capacity", capacity]);
        let causes = list(&report["snapshots"][0]["devices"][0]["ooms"][0]["causes"]).to_vec();
        let outside = causes.into_iter().find(|cause| cause["kind"] == "non-pytorch");
        outside.map(|cause| cause["bytes"].as_u64().unwrap())
    };
    assert_eq!(causes("480MiB"), None);
    assert_eq!(causes("1G"), Some((1024 - 480) << 20));
    assert_eq!(run(&["analyze", OOM, "--capacity", "plenty"]).code, 2);
    assert!(result_of(&["analyze", "--full", OOM, "--capacity", "300MiB"]).contains("small-capacity: "));
    assert!(!result_of(&["analyze", "--full", OOM, "--capacity", "400MiB"]).contains("small-capacity: "));
}

#[test]
fn top_limits_the_tables_and_the_rest_is_summed() {
    for (path, top) in [(OOM, 0), (OOM, 1), (MAIN_EXAMPLE, 4), (OOM, 9999), (OOM, 3)] {
        let n = top.to_string();
        let report = analyze(&[path, "--top", &n]);
        let device = &report["snapshots"][0]["devices"][0];
        for table in ["top_stacks", "top_lines"] {
            assert!(list(&device[table]).len() <= top, "{table} with --top {top}");
        }
        // The page ends its table of lines with what the listed ones leave.
        let live = &device["blocks"]["active_allocated"];
        let rest = live["bytes"].as_u64().unwrap() - sum(&device["top_lines"], "bytes");
        let rest_blocks = live["count"].as_u64().unwrap() - sum(&device["top_lines"], "blocks");
        let page = result_of(&["analyze", "--full", path, "--top", &n]);
        let told = page
            .lines()
            .skip_while(|line| !line.contains("by line"))
            .find(|line| line.trim_start().starts_with("everything else"));
        if rest_blocks == 0 {
            assert_eq!((rest, told), (0, None));
        } else {
            let told: Vec<&str> = told.unwrap().split("  ").map(str::trim).filter(|s| !s.is_empty()).collect();
            assert_eq!((told[1], told[3]), (units::size(rest).as_str(), units::count(rest_blocks).as_str()));
        }
    }
}
