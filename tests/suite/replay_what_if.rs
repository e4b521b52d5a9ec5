//! A what-if is what really happens: the same run was recorded under several settings and releases, and
//! replaying one recording under the circumstances of another gives the other's own figures.

use crate::support::{fixtures, recorded};
use oomscope::allocator::conf::{self, Settings, UnknownKeys};
use oomscope::replay::literal::settings_for_release;
use oomscope::replay::model::count_end_differences;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use oomscope::whatif::{ModelRun, Overrides, ReplayReport, replay_with};

/// Recordings of one run, and the figures that its trace does not tell: a call of `empty_cache()` that
/// gives nothing back leaves no entry.
const SAME_RUNS: [(&str, &str, &[&str]); 14] = [
    // Other settings.
    ("2.15.0-holes", "2.15.0-holes-expandable", &[]),
    ("2.15.0-conv_train", "2.15.0-conv_train-expandable", &[]),
    ("2.15.0-mempool", "2.15.0-mempool-expandable", &[]),
    ("2.15.0-graphs", "2.15.0-graphs-expandable", &[SYNC]),
    // Other releases.
    ("2.2.2-streams-lag", "2.4.1-streams-lag", &[]),
    ("2.4.1-streams-lag", "2.7.1-streams-lag", &[]),
    ("2.7.1-streams-lag", "2.10.0-streams-lag", &[]),
    ("2.10.0-streams-lag", "2.13.0-streams-lag", &[]),
    ("2.2.2-streams-lag", "2.13.0-streams-lag", &[]),
    // Both at once.
    ("2.5.1-mempool-expandable", "2.10.0-mempool", &[]),
    ("2.10.0-mempool", "2.14.1-mempool-expandable", &[]),
    ("2.5.1-mempool-expandable", "2.14.1-mempool-expandable", &[]),
    ("2.5.1-graphs", "2.8.0-graphs-expandable", &[SYNC]),
    // Its own.
    ("2.15.0-two_devices", "2.15.0-two_devices", &[]),
];
const SYNC: &str = "num_sync_all_streams";
const MIB: u64 = 1 << 20;
/// The devices of the recordings that never ran out of memory; it bounds reservations.
const CAPACITY: u64 = 81_920 * MIB;

fn minor(name: &str) -> u32 {
    name.split('.').nth(1).unwrap().parse().unwrap()
}

fn settings(snapshot: &Snapshot, minor: u32) -> (Settings, String) {
    let string = snapshot.settings.as_ref().map_or_else(String::new, |raw| raw.string.clone());
    (settings_for_release(snapshot, minor), string)
}

fn replay(from: &Snapshot, overrides: &Overrides) -> (ReplayReport, Vec<ModelRun>) {
    let study = Study::new(from, Scope::default());
    assert!(study.inference().is_exact);
    replay_with(&study, "a", overrides, true)
}

/// Replays `from` under the circumstances of `to`: the figures that differ from those that were recorded
/// with `to`, and whether the segments are the same.
fn differences(from: &str, to: &str) -> (Vec<String>, bool) {
    let (minor, target) = (minor(to), fixtures::snapshot(to));
    let overrides =
        Overrides { settings: Some(settings(&target, minor)), capacity: Some(CAPACITY), minor: Some(minor), gpu: None };
    let (report, emitted) = replay(&fixtures::snapshot(from), &overrides);
    let recorded = recorded::of(to).unwrap();
    assert_eq!(report.devices.len(), recorded.stats.len());
    let (mut differing, mut is_same) = (Vec::new(), true);
    for (device, one) in report.devices.iter().zip(&emitted) {
        let theirs = recorded.stats[usize::try_from(one.device).unwrap()].as_object().unwrap();
        for (key, value) in theirs {
            if device.statistics.get(key).copied() != value.as_i64() {
                differing.push(key.clone());
            }
        }
        assert_eq!(device.ooms.len(), 0, "{from} as {to}");
        is_same &= count_end_differences(target.device(one.device), &one.allocator) == 0;
    }
    (differing, is_same)
}

#[test]
fn a_run_under_other_settings_is_the_run_that_was_recorded_under_them() {
    for (one, other, hidden) in SAME_RUNS {
        for (from, to) in [(one, other), (other, one)] {
            let (differing, is_same) = differences(from, to);
            assert_eq!(differing, hidden, "{from} as {to}");
            assert!(is_same, "{from} as {to}: the segments differ");
        }
    }
}

/// The plain run gave back twice what its trace shows in the rounded one: there, two of its four calls of
/// `empty_cache()` found nothing, left no entry, and are no calls of the what-if.
#[test]
fn memory_that_a_hidden_call_would_have_released_is_unknown() {
    assert_eq!(differences("2.15.0-fuzz", "2.15.0-fuzz-roundup"), (vec![SYNC.to_owned()], true));
    let (differing, is_same) = differences("2.15.0-fuzz-roundup", "2.15.0-fuzz");
    assert!(!is_same && differing.contains(&"num_device_free".to_owned()), "{differing:?}");
    let told = ["num_device_alloc", "reserved_bytes.all.peak", "allocated_bytes.all.peak"];
    assert!(told.iter().all(|key| !differing.contains(&(*key).to_owned())), "{differing:?}");
}

/// A small device fails the run where the real one failed.
#[test]
fn a_run_on_a_smaller_device_fails_as_the_recorded_one_did() {
    let (from, to) = ("2.15.0-holes", "2.15.0-holes-at-oom");
    let overrides = Overrides { capacity: Some(480 * MIB), ..Overrides::default() };
    let (report, _) = replay(&fixtures::snapshot(from), &overrides);
    let [oom] = report.devices[0].ooms[..] else { panic!("{:?}", report.devices[0].ooms) };
    let target = fixtures::snapshot(to);
    let study = Study::new(&target, Scope::default());
    let recorded = oomscope::whatif::verify_study(&study, to);
    let [theirs] = recorded.devices[0].ooms[..] else { panic!("{:?}", recorded.devices[0].ooms) };
    assert_eq!(oom.requested_bytes, theirs.requested_bytes, "both rounded");
    // The snapshot was taken at the failure; the plain run went on and gave memory back.
    let device = &report.devices[0];
    assert_eq!(device.figures.peak_reserved_bytes, recorded.devices[0].figures.peak_reserved_bytes);
    assert_eq!(device.figures.peak_allocated_bytes, recorded.devices[0].figures.peak_allocated_bytes);
    assert_eq!(device.figures.device_allocs, recorded.devices[0].figures.device_allocs);
    assert_eq!(device.figures.retries, 1);
    assert_eq!(device.avoided_ooms.len(), 0);
}

#[test]
fn on_a_larger_device_the_failed_request_is_served_and_freed() {
    let from = fixtures::snapshot("2.15.0-holes-at-oom");
    let bytes_before = Study::new(&from, Scope::default()).inference().devices[0]
        .verification
        .allocator
        .statistics
        .allocated_bytes
        .all
        .current;
    let overrides = Overrides { capacity: Some(CAPACITY), ..Overrides::default() };
    let (report, emitted) = replay(&from, &overrides);
    let device = &report.devices[0];
    let recorded = device.recorded.as_ref().unwrap();
    assert_eq!((device.ooms.len(), device.avoided_ooms.len(), recorded.ooms.len()), (0, 1, 1));
    assert_eq!(device.avoided_ooms[0].event, recorded.ooms[0].event);
    let after = emitted[0].allocator.statistics.allocated_bytes.all.current;
    assert_eq!(after, bytes_before, "the program went on without it");
    assert_eq!((device.exact, device.events.matched), (None, None), "nothing is held against it");
    assert_eq!(report.mode, "what-if");
}

/// Under its own settings and on its own device a what-if repeats what was recorded.
#[test]
fn nothing_changed_changes_nothing() {
    for name in [
        "2.15.0-fuzz-oom",
        "2.15.0-fuzz-expandable-oom",
        "2.15.0-fuzz-max_split-oom",
        "2.15.0-two_devices",
        "2.15.0-oom_varlen-at-oom",
        "2.9.1-oom_varlen-expandable-at-oom",
        "2.11.0-fuzz_streams-oom-lag",
    ] {
        let snapshot = fixtures::snapshot(name);
        let change = Overrides { settings: Some(settings(&snapshot, minor(name))), ..Overrides::default() };
        let (report, emitted) = replay(&snapshot, &change);
        for (device, one) in report.devices.iter().zip(&emitted) {
            let recorded = device.recorded.as_ref().unwrap();
            let differing: Vec<&String> = device
                .statistics
                .iter()
                .filter(|(key, value)| recorded.statistics.get(*key) != Some(value))
                .map(|(key, _)| key)
                .collect();
            assert_eq!(differing, Vec::<&String>::new(), "{name}");
            assert_eq!(device.ooms.len(), recorded.ooms.len(), "{name}");
            assert_eq!(device.avoided_ooms.len(), 0, "{name}");
            assert_eq!(count_end_differences(snapshot.device(one.device), &one.allocator), 0, "{name}");
        }
    }
}

#[test]
fn a_limit_refuses_what_the_device_would_give() {
    let from = fixtures::snapshot("2.15.0-holes");
    let fraction = "per_process_memory_fraction:0.5";
    let base = Settings::default();
    let parsed = conf::parse(fraction, &base, 15, UnknownKeys::Refuse).unwrap();
    let overrides = Overrides {
        settings: Some((parsed.settings, fraction.to_owned())),
        capacity: Some(600 * MIB),
        minor: None,
        gpu: None,
    };
    let (report, _) = replay(&from, &overrides);
    let device = &report.devices[0];
    assert_eq!(device.assumed.limit_bytes, Some(300 * MIB));
    assert!(device.figures.peak_reserved_bytes <= 300 * MIB && !device.ooms.is_empty());
}
