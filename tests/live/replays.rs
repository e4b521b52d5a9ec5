//! Replays that go well, or fail for lack of memory as predicted.

use serde_json::Value;
use tempfile::TempDir;

use crate::driver::{MIB, assert_nothing_left, fixture, live, report, small_program};
use crate::program::{result_of, run};

const FIGURES: [&str; 5] = ["ooms", "peak_reserved_bytes", "device_allocs", "device_frees", "retries"];

fn replayed(args: &[&str]) -> Value {
    let args: Vec<&str> = ["replay", "--format", "json"].iter().chain(args).copied().collect();
    serde_json::from_str(&result_of(&args)).unwrap()
}

/// The figures of every device are those of the what-if on a simulated device of the same size.
fn assert_same(live: &Value, simulated: &Value, what: &str) {
    let live = live["devices"].as_array().unwrap();
    for device in live {
        assert_eq!(device["as_predicted"], true, "{what}");
        assert_eq!(device["first_difference"], Value::Null, "{what}");
        let all = simulated["devices"].as_array().unwrap();
        let same = all.iter().find(|one| one["device"] == device["device"]).unwrap();
        for key in FIGURES {
            assert_eq!(device[key], same[key], "{what}: {key}");
        }
    }
    assert!(!live.is_empty(), "{what}");
}

#[test]
fn the_corpus_is_decided_as_on_the_simulated_device() {
    let mut failed = 0;
    for name in crate::fixtures::names() {
        if name.ends_with("no-history") {
            continue;
        }
        let path = fixture(&name);
        // As recorded on a device with room, and on one with half of what was reserved at most.
        let roomy = 80 << 10;
        let simulated = replayed(&["--capacity", &(roomy * MIB).to_string(), &path]);
        let devices = simulated["devices"].as_array().unwrap();
        let peaks = devices.iter().map(|device| device["peak_reserved_bytes"].as_u64().unwrap());
        let half = peaks.max().unwrap() / 2 / MIB / 2 * 2;
        for total in [roomy, half] {
            let simulated = replayed(&["--capacity", &(total * MIB).to_string(), &path]);
            let total = total.to_string();
            let args = ["--reserve", "0", &path];
            let (ran, ledger) = live(&[&["--format", "json"], &args[..]].concat(), &[("STUB_TOTAL_MIB", &total)]);
            assert_nothing_left(&ledger);
            if ran.code == 2 {
                // What was held when a late recording began does not fit in half.
                assert!(ran.err.contains("when the recording began, more than"), "{}", ran.err);
                continue;
            }
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{name}");
            let report: Value = serde_json::from_str(&ran.out).unwrap();
            assert_same(&report, &simulated, &format!("{name} on {total} MiB"));
            let devices = report["devices"].as_array().unwrap();
            failed += devices.iter().map(|d| d["ooms"].as_array().unwrap().len()).sum::<usize>();
            // The driver counted what the model did.
            let peaks = devices.iter().map(|device| device["driver_peak_bytes"].as_u64().unwrap());
            assert_eq!(peaks.max(), Some(ledger["peak"]), "{name} on {total} MiB");
        }
    }
    assert!(failed > 1000, "only {failed} requests failed on small devices");
}

#[test]
fn other_settings_are_replayed_as_in_the_what_if() {
    for settings in [
        "expandable_segments:True",
        "max_split_size_mb:64,garbage_collection_threshold:0.6",
        "expandable_segments:True,per_process_memory_fraction:0.02",
    ] {
        let path = fixture("2.15.0-fuzz_streams-oom-lag");
        let args = ["--set", settings, &path];
        let capacity = (4096 * MIB).to_string();
        let simulated = replayed(&[&["--capacity", &capacity], &args[..]].concat());
        let (report, _) = report(&[&["--reserve", "0"], &args[..]].concat(), &[("STUB_TOTAL_MIB", "4096")]);
        assert_same(&report, &simulated, settings);
        assert_eq!(report["settings_string"], simulated["settings_string"]);
    }
}

/// Memory held before the recording is really taken, at whatever addresses the driver gives.
#[test]
fn late_recordings_begin_with_what_was_held() {
    for name in ["2.15.0-gpt_varlen-late", "2.15.0-gpt_varlen-wrapped"] {
        let path = fixture(name);
        for settings in ["expandable_segments:False", "expandable_segments:True"] {
            let (report, ledger) = report(&["--set", settings, &path], &[]);
            let device = &report["devices"][0];
            assert_eq!(device["start"], "reconstructed");
            assert_eq!(device["driver_peak_bytes"], ledger["peak"]);
            // Timed calls are those of the replay: fewer than took all that was held.
            let timed = device["calls"]["malloc"]["count"].as_u64().unwrap()
                + device["calls"]["map"]["count"].as_u64().unwrap();
            assert_eq!(timed, device["device_allocs"].as_u64().unwrap(), "{name} {settings}");
        }
        let (ran, ledger) = live(&[&path], &[("STUB_TOTAL_MIB", "1024")]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("reserved when the recording began, more than the 512 MiB"), "{}", ran.err);
        assert_nothing_left(&ledger);
    }
}

/// An expandable segment that was there before, with holes in what is mapped.
#[test]
fn expandable_segments_of_before_are_rebuilt() {
    let directory = TempDir::new().unwrap();
    let late = crate::late::half(&directory, "2.15.0-fuzz_streams-expandable-oom-lag");
    let (report, ledger) = report(&[&late], &[]);
    let device = &report["devices"][0];
    assert_eq!((&device["start"], &device["as_predicted"]), (&"reconstructed".into(), &true.into()));
    assert!(device["calls"]["unmap"]["count"].as_u64().unwrap() > 0, "{device}");
    assert_eq!(device["driver_peak_bytes"], ledger["peak"]);
}

#[test]
fn the_margin_and_what_others_hold_are_left_alone() {
    let path = fixture("2.15.0-oom_varlen-at-oom");
    for (reserve, margin) in [(None, 512), (Some("1GiB"), 1024), (Some("0"), 0)] {
        let mut args = vec![path.as_str()];
        args.extend(reserve.iter().flat_map(|reserve| ["--reserve", reserve]));
        let stub = [("STUB_TOTAL_MIB", "7168"), ("STUB_OTHERS_MIB", "2048")];
        let (report, ledger) = report(&args, &stub);
        let within_reach = (7168 - 2048 - margin) * MIB;
        assert_eq!(report["gpu"]["within_reach_bytes"], within_reach);
        assert_eq!(report["gpu"]["total_bytes"], 7168 * MIB);
        assert!(ledger["peak"] <= within_reach, "{ledger:?}");
        assert!(ledger["peak"] > within_reach - 512 * MIB, "the limit was not met: {ledger:?}");
        assert!(!report["devices"][0]["ooms"].as_array().unwrap().is_empty());
    }
}

#[test]
fn touching_writes_what_is_taken() {
    let directory = TempDir::new().unwrap();
    let path = small_program(&directory);
    for settings in ["expandable_segments:True", "expandable_segments:False"] {
        let (plain, untouched) = report(&["--set", settings, &path], &[]);
        let (touched, ledger) = report(&["--touch", "--set", settings, &path], &[]);
        assert_eq!((&plain["touched"], &touched["touched"]), (&false.into(), &true.into()));
        assert_eq!(untouched["written"], 0);
        let peak = touched["devices"][0]["peak_reserved_bytes"].as_u64().unwrap();
        assert!(ledger["written"] >= peak, "{ledger:?}");
    }
}

#[test]
fn a_call_takes_as_long_as_the_driver_takes() {
    let directory = TempDir::new().unwrap();
    let path = small_program(&directory);
    let slow =
        [("STUB_MALLOC_US", "3000"), ("STUB_FREE_US", "2000"), ("STUB_MAP_US", "3000"), ("STUB_UNMAP_US", "2000")];
    for (settings, grow, shrink) in
        [("expandable_segments:True", "map", "unmap"), ("expandable_segments:False", "malloc", "free")]
    {
        // Less than everything at once, so that some has to be given back.
        let args = ["--reserve", "0", "--set", settings, &path];
        let stub = [&slow[..], &[("STUB_TOTAL_MIB", "300")]].concat();
        let (report, _) = report(&args, &stub);
        let calls = &report["devices"][0]["calls"];
        for (call, least) in [(grow, 3000), (shrink, 2000)] {
            let times = &calls[call];
            let [count, total, median, p99] =
                ["count", "total_us", "median_us", "p99_us"].map(|key| times[key].as_u64().unwrap());
            assert!(count > 0 && median >= least && p99 >= median, "{call}: {times}");
            assert!(total >= count * least, "{call}: {times}");
        }
    }
}

#[test]
fn several_devices_are_replayed_one_after_the_other() {
    let (report, _) = report(&[&fixture("2.15.0-two_devices")], &[]);
    let devices = report["devices"].as_array().unwrap();
    assert_eq!(devices.iter().map(|d| d["device"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    let (ran, _) = live(&["--device", "1", "--format", "json", &fixture("2.15.0-two_devices")], &[]);
    let one: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(one["devices"].as_array().unwrap().len(), 1);
    assert_eq!(one["devices"][0]["device"], 1);
}

#[test]
fn the_page_has_the_figures_that_a_person_needs() {
    let path = fixture("2.15.0-oom_varlen-at-oom");
    let (ran, _) = live(&["--full", "--gpu", "1", &path], &[("STUB_GPUS", "2"), ("STUB_TOTAL_MIB", "5632")]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for words in ["Stub GPU 1, CUDA 12.8", "512 MiB left unused, so 5 GiB is within", "cudaMalloc"] {
        assert!(ran.out.contains(words), "{words}:\n{}", ran.out);
    }
    let again = run(&["live", "--help"]);
    assert!(again.out.contains("--gpu <N>") && again.out.contains("Exit codes"), "{}", again.out);
}
