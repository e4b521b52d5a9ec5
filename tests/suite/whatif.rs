//! `oomscope whatif`: every row is what really happens under its settings, on its device.
//! Slow: every row of a table is a replay.

use std::cmp::Reverse;

use crate::support::program::{refusal, result_of, text};
use crate::support::recorded::Recorded;
use crate::support::{fixtures, recorded};
use oomscope::base::warning::Code;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use oomscope::whatif::{
    JobOutcome, Overrides, WhatIfOptions, WhatIfReport, WhatIfRow, apply_option, compare_settings, replay_with,
};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn rows(snapshot: &Snapshot, options: &[&str], capacity: Option<u64>) -> WhatIfReport {
    let study = Study::new(snapshot, Scope::default());
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let asked = WhatIfOptions { options: &options, capacity, ..WhatIfOptions::default() };
    compare_settings(&study, "a", asked, &|_, _| {}).unwrap()
}

fn figures(recorded: &Recorded) -> [u64; 4] {
    ["reserved_bytes.all.peak", "allocated_bytes.all.peak", "num_device_alloc", "num_device_free"]
        .map(|key| recorded.stat(0, key))
}

#[test]
fn the_rows_are_the_recorded_runs() {
    for (name, other, option) in [
        ("2.15.0-holes", "2.15.0-holes-expandable", "expandable_segments:True"),
        ("2.15.0-holes-expandable", "2.15.0-holes", "expandable_segments:False"),
        ("2.15.0-conv_train", "2.15.0-conv_train-expandable", "expandable_segments:True"),
    ] {
        let report = rows(&fixtures::snapshot(name), &[option], None);
        let [own, tried] = &report.rows[..] else { panic!("{:?}", report.rows) };
        for (row, recording) in [(own, name), (tried, other)] {
            let row = [
                row.figures.peak_reserved_bytes,
                row.figures.peak_allocated_bytes,
                row.figures.device_allocs,
                row.figures.device_frees,
            ];
            assert_eq!(row, figures(&recorded::of(recording).unwrap()), "{recording}");
        }
        assert_eq!((own.settings.as_str(), tried.settings.as_str()), ("", option));
        assert!(report.lower_bound_bytes <= tried.figures.peak_allocated_bytes);
        assert_eq!(report.capacity_bytes, None, "nothing failed");
    }
}

/// On a device of the size found every request is served; on one smaller by more than the precision
/// that is promised, one fails.
#[test]
fn the_smallest_device_is_the_smallest() {
    for name in ["2.15.0-holes-at-oom", "2.15.0-oom_varlen-at-oom", "2.15.0-fuzz_streams-oom-lag"] {
        let snapshot = fixtures::snapshot(name);
        let study = Study::new(&snapshot, Scope::default());
        let tried = ["expandable_segments:True", "max_split_size_mb:64"];
        for row in rows(&snapshot, &tried, None).rows {
            let found = row.smallest_capacity_bytes.unwrap();
            let slack = (2 * MIB).max(found / 256) + 4 * MIB;
            let settings = (!row.settings.is_empty())
                .then(|| apply_option(&snapshot, &study.inference().devices[0].hypothesis, &row.settings).unwrap());
            for (capacity, fails) in [(found, false), (found - slack, true)] {
                let settings = settings.clone();
                let overrides = Overrides { settings, capacity: Some(capacity), minor: None, gpu: None };
                let (report, _) = replay_with(&study, "a", &overrides, false);
                let ooms = &report.devices[0].ooms;
                assert_eq!(!ooms.is_empty(), fails, "{name} {:?} on {capacity}", row.settings);
            }
        }
    }
}

#[test]
fn the_best_come_first_and_the_grid_has_no_row_twice() {
    let report = rows(&fixtures::snapshot("2.15.0-oom_varlen-at-oom"), &[], None);
    let served = |r: &WhatIfRow| match &r.then {
        JobOutcome::FailsAgain { after_requests, .. } => *after_requests,
        _ => 0,
    };
    let key = |r: &WhatIfRow| (r.ooms, Reverse(served(r)), r.figures.peak_reserved_bytes, r.figures.device_allocs);
    let keys: Vec<_> = report.rows[1..].iter().map(key).collect();
    // As `analyze` has it of the remedies: what only postpones the failure is told from what lasts.
    let then = |option: &str| &report.rows.iter().find(|row| row.settings == option).unwrap().then;
    // PyTorch itself fails again at the second request after the latter.
    for option in ["max_split_size_mb:256", "expandable_segments:True"] {
        assert!(matches!(then(option), JobOutcome::FailsAgain { .. }), "{option}: {:?}", then(option));
    }
    assert!(keys.is_sorted(), "{keys:?}");
    let mut settings: Vec<&str> = report.rows.iter().map(|row| row.settings.as_str()).collect();
    assert!(settings.len() > 15);
    settings.sort_unstable();
    settings.dedup();
    assert_eq!(settings.len(), report.rows.len());
    assert_eq!(report.rows[0].ooms, 1, "as recorded");
    assert!(Some(report.lower_bound_bytes) <= report.rows[0].smallest_capacity_bytes);
}

#[test]
fn an_impossible_replay_is_refused_in_one_sentence() {
    let holes = "fixtures/2.15.0-holes.pickle.gz";
    let said = refusal(&["whatif", "--set", "max_split_size:64", holes]);
    assert!(said.contains("did you mean max_split_size_mb?"), "{said}");
    let said = refusal(&["whatif", "--device", "7", holes]);
    assert!(said.contains("GPU 7"), "{said}");
}

#[test]
fn settings_that_do_harm_or_nothing_are_warned_of() {
    let codes = |option: &str| -> Vec<&'static str> {
        let report = rows(&fixtures::snapshot("2.15.0-holes"), &[option], None);
        report.warnings.iter().map(|warning| warning.code.word()).collect()
    };
    assert_eq!(codes("expandable_segments:True,max_split_size_mb:64"), ["harmful-settings"]);
    assert_eq!(codes("garbage_collection_threshold:0.5"), ["idle-setting"]);
    assert_eq!(codes("max_split_size_mb:64"), [""; 0]);
    // The grid has none of them.
    let report = rows(&fixtures::snapshot("2.15.0-fuzz-max_split-oom"), &[], None);
    assert!(report.warnings.is_empty());
    assert!(report.rows.iter().all(|row| row.settings != "expandable_segments:True"));
}

/// Memory from before the recording stays in a replay, on a device of any size: the rows are not to be taken
/// in by that.
#[test]
fn nothing_fits_below_what_was_held() {
    for name in ["2.15.0-gpt_varlen-late", "2.15.0-gpt_varlen-wrapped", "2.15.0-holes"] {
        let snapshot = fixtures::snapshot(name);
        let least = |report: &WhatIfReport| {
            let [device] = &report.devices[..] else { panic!("{:?}", report.devices) };
            device.lower_bound_bytes.max(device.reserved_before_bytes)
        };
        let options = ["expandable_segments:True", "roundup_power2_divisions:8"];
        let unbounded = rows(&snapshot, &options, None);
        assert!(unbounded.devices[0].some_row_serves);
        for row in &unbounded.rows {
            assert!(row.smallest_capacity_bytes.unwrap() >= least(&unbounded), "{name} {row:?}");
        }
        let (least_of_all, before) = (least(&unbounded), unbounded.devices[0].reserved_before_bytes);
        for capacity in [20 * MIB, least_of_all / 2, least_of_all - 1, before.clamp(MIB, least_of_all - 1)] {
            let report = rows(&snapshot, &options, Some(capacity));
            assert!(!report.devices[0].some_row_serves, "{name} {capacity}");
            for row in &report.rows {
                assert!(row.ooms > 0 && row.first_oom_event.is_some(), "{name} {capacity} {row:?}");
                assert!(row.smallest_capacity_bytes >= Some(least(&report)), "{name} {row:?}");
            }
            let study = Study::new(&snapshot, Scope::default());
            let overrides = Overrides { capacity: Some(capacity), ..Overrides::default() };
            let (report, _) = replay_with(&study, "a", &overrides, false);
            assert!(!report.devices[0].ooms.is_empty(), "{name} {capacity}");
            let is_small = report.warnings.iter().any(|warning| warning.code == Code::SmallCapacity);
            assert_eq!(is_small, capacity < before, "{name} {capacity}");
        }
    }
    let late = text(&fixtures::path("2.15.0-gpt_varlen-late"));
    let page = result_of(&["whatif", "--capacity", "1GiB", &late]);
    assert!(page.contains("nothing helps of "), "{page}");
    let page = result_of(&["whatif", "--capacity", "80GiB", &late]);
    let mut gains = page.lines().filter(|line| line.contains("reserves 1.21 GiB less"));
    assert!(gains.any(|line| line.contains("checkpoint each of 6 calls")), "{page}");
    let page = result_of(&["replay", "--capacity", "1GiB", &late]);
    assert!(page.starts_with("no, it does not fit 1 GiB: ") && page.contains("fail"), "{page}");
}

/// The same where the trace has no request at all: a ring of one entry.
#[test]
fn initial_memory_may_be_too_much_by_itself() {
    let block = json!({"address": 1u64 << 40, "size": 64 * MIB, "requested_size": 64 * MIB,
        "state": "active_pending_free"});
    let segment = json!({"device": 0, "address": 1u64 << 40, "total_size": 64 * MIB,
        "allocated_size": 0, "active_size": 64 * MIB, "stream": 0, "segment_type": "large",
        "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [block]});
    let free = json!({"action": "free_requested", "addr": 1u64 << 40, "size": 64 * MIB,
        "stream": 0, "time_us": 5});
    let text = json!({"segments": [segment], "device_traces": [[free]]}).to_string();
    let snapshot = Snapshot::read(text.as_bytes(), &|_| {}).unwrap();
    for row in rows(&snapshot, &["max_split_size_mb:32"], Some(20 * MIB)).rows {
        assert_eq!((row.ooms, row.first_oom_event), (1, Some(0)), "{row:?}");
    }
}

#[test]
fn each_device_has_its_own_bounds() {
    let report = rows(&fixtures::snapshot("2.15.0-two_devices"), &["max_split_size_mb:64"], None);
    for (device, rows) in report.devices.iter().zip(report.rows.chunks(2)) {
        let most = rows[0].figures.peak_allocated_bytes;
        assert!(device.lower_bound_bytes <= most && device.lower_bound_bytes * 10 > most * 9);
        assert!(device.exact && device.device == rows[0].device);
    }
    let bounds = report.devices.iter().map(|device| device.lower_bound_bytes);
    assert_eq!(bounds.clone().max(), Some(report.lower_bound_bytes));
    assert_ne!(bounds.clone().min(), bounds.max(), "or this shows nothing");
}

/// Of a recording that the model does not reproduce (here by the rules of another release) what was recorded
/// is told from the trace, not from the part that was reproduced.
#[test]
fn a_recording_that_is_not_reproduced_comes_with_a_warning() {
    let name = "2.3.1-fuzz-roundup";
    let stats = recorded::of(name).unwrap();
    // How much of a block was asked for is read by the rules of the release.
    let [reserved, _, allocs, frees] = figures(&stats);
    let wanted = [reserved, allocs, frees];
    let path = text(&fixtures::path(name));
    let read = |args: &[&str]| -> Value {
        let format = ["--format", "json", "--torch-version", "2.4", &path];
        serde_json::from_str(&result_of(&[args, &format].concat())).unwrap()
    };
    let own =
        |of: &Value| ["peak_reserved_bytes", "device_allocs", "device_frees"].map(|key| of[key].as_u64().unwrap());
    let report = read(&["whatif", "--set", "max_split_size_mb:64"]);
    assert_eq!(report["warnings"][0]["code"], "model-parted");
    assert_eq!(report["devices"][0]["exact"], false);
    assert_eq!(own(&report["rows"][0]), wanted, "as recorded");
    let report = read(&["replay", "--set", "max_split_size_mb:64"]);
    assert_eq!(report["warnings"][0]["code"], "model-parted");
    let recorded = &report["devices"][0]["recorded"];
    assert_eq!((own(recorded), &recorded["exact"]), (wanted, &json!(false)));
    assert_eq!(recorded["statistics"]["reserved_bytes.all.peak"], wanted[0]);
    let page = result_of(&["whatif", "--set", "default", "--torch-version", "2.4", &path]);
    assert!(page.contains("note: GPU 0: the model reproduces only"), "{page}");
}

/// What was recorded with options is replayed without them: the program as it was recorded with none.
#[test]
fn recorded_options_can_be_undone() {
    let snapshot = fixtures::snapshot("2.15.0-holes-expandable");
    let plain = figures(&recorded::of("2.15.0-holes").unwrap());
    for option in ["default", "expandable_segments:default"] {
        let report = rows(&snapshot, &[option], None);
        let row = &report.rows[1];
        let found = [
            row.figures.peak_reserved_bytes,
            row.figures.peak_allocated_bytes,
            row.figures.device_allocs,
            row.figures.device_frees,
        ];
        assert_eq!((found, row.settings.as_str()), (plain, option));
    }
    let grid = |name: &str| rows(&fixtures::snapshot(name), &[], None).rows;
    // Equal settings are tried once: by the option that was set, if it was one.
    for (name, undone) in [
        ("2.15.0-holes-expandable", "expandable_segments:False"),
        ("2.15.0-fuzz-max_split-oom", "max_split_size_mb:default"),
        ("2.15.0-fuzz-max_split-gc-oom", "default"),
    ] {
        assert!(grid(name).iter().any(|row| row.settings == undone), "{name}");
    }
    let sets_something = |settings: &str| !settings.contains("default");
    assert!(grid("2.15.0-holes").iter().all(|row| sets_something(&row.settings)), "nothing was set");
}

#[test]
fn progress_is_reported_row_by_row() {
    let snapshot = fixtures::snapshot("2.15.0-two_devices");
    let study = Study::new(&snapshot, Scope::default());
    let options = ["expandable_segments:True".to_owned()];
    let told = std::sync::Mutex::new(Vec::new());
    let asked = WhatIfOptions { options: &options, ..WhatIfOptions::default() };
    compare_settings(&study, "a", asked, &|done, all| told.lock().unwrap().push((done, all))).unwrap();
    let mut told = told.into_inner().unwrap();
    told.sort_unstable();
    assert_eq!(told, [(1, 4), (2, 4), (3, 4), (4, 4)]);
}

/// A device of which the process may use a part has to be so much larger.
#[test]
fn a_fraction_of_the_smallest_device_is_enough() {
    let option = "per_process_memory_fraction:0.5";
    let report = rows(&fixtures::snapshot("2.15.0-holes"), &[option], None);
    let [own, half] = &report.rows[..] else { panic!("{:?}", report.rows) };
    let [own, half] = [own, half].map(|row| row.smallest_capacity_bytes.unwrap());
    assert!(half.abs_diff(2 * own) <= 4 * MIB, "{own} {half}");
    let report = rows(&fixtures::snapshot("2.15.0-holes"), &["per_process_memory_fraction:0"], None);
    assert_eq!(report.rows[1].smallest_capacity_bytes, None);
}

#[test]
fn requests_that_overflow_their_sum_do_not_wrap_around_when_freed() {
    let entry = |action: &str, addr: u64| json!({"action": action, "addr": addr, "size": 1u64 << 62, "stream": 0});
    let addresses = (1..=6u64).map(|n| n << 40);
    let frees = addresses.clone().flat_map(|at| ["free_requested", "free_completed"].map(|action| entry(action, at)));
    let small = json!({"action": "alloc", "addr": 512, "size": 512, "stream": 0});
    let trace: Vec<Value> = addresses.map(|at| entry("alloc", at)).chain(frees).chain([small]).collect();
    let file = json!({"segments": [], "device_traces": [trace]}).to_string();
    let snapshot = Snapshot::read(file.as_bytes(), &|_| {}).unwrap();
    let report = rows(&snapshot, &["expandable_segments:True"], None);
    assert_eq!((report.rows.len(), report.lower_bound_bytes), (2, u64::MAX));
}
