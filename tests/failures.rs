//! Failures that were made on purpose: what caused each is known, and has to be found out.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::pedantic, clippy::unwrap_used)]

#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/recorded.rs"]
mod recorded;

use oomscope::analysis::{OomReport, Options, analyze};
use oomscope::input::Source;
use oomscope::snapshot::Snapshot;

const MIB: u64 = 1 << 20;
/// The device of every scenario.
const CAPACITY: u64 = 400 * MIB;

type Scenario = (&'static str, &'static str, Option<(u64, u64, u64)>);

/// What was arranged: the scenario, its verdict, and how many blocks of which size stand in the way of
/// how much, in MiB.
const SCENARIOS: [Scenario; 14] = [
    ("capacity", "capacity", None),
    ("capacity-expandable", "capacity", None),
    // 95 blocks of 4 MiB, every other one freed.
    ("fragmentation", "fragmentation", Some((48, 4, 188))),
    ("fragmentation-expandable", "fragmentation", Some((48, 4, 188))),
    // 90 blocks of 4 MiB on a side stream, one in five kept.
    ("other_stream", "other-stream", Some((18, 4, 288))),
    ("other_stream-expandable", "other-stream", Some((18, 4, 288))),
    // 8 blocks of 40 MiB, one kept: each a segment of its own, or all in one.
    ("private_pool", "private-pool", None),
    ("private_pool-expandable", "private-pool", Some((1, 40, 280))),
    ("memory_limit", "memory-limit", None),
    ("memory_limit-expandable", "memory-limit", None),
    ("pending_free", "pending-free", None),
    ("pending_free-expandable", "pending-free", None),
    ("outside", "non-pytorch", None),
    // 5 blocks of 30 MiB in granules of 20.
    ("outside-expandable", "non-pytorch", Some((1, 30, 10))),
];

fn failure(name: &str, capacity: Option<u64>) -> OomReport {
    let path = fixtures::directory().join(format!("failures/{name}.pickle.gz"));
    let source = Source::open(&path).unwrap_or_else(|e| panic!("{name} {e}"));
    let snapshot = Snapshot::read(&source, &|_| {}).unwrap();
    let report = analyze(&snapshot, name, 0, Options { top: 10, capacity, ..Options::default() });
    let [oom] = &report.devices[0].ooms[..] else { panic!("{name}: not one failure") };
    oom.clone()
}

#[test]
fn the_cause_the_line_and_the_blocks_in_the_way_are_those_arranged() {
    for (name, verdict, blockers) in SCENARIOS {
        let oom = failure(name, Some(CAPACITY));
        assert_eq!(oom.verdict, verdict, "{name}: {}", oom.verdict_reason);
        assert_eq!(oom.culprit.as_ref().unwrap().name, "culprit", "{name}");
        let found: Vec<_> = oom
            .blockers
            .iter()
            .map(|b| {
                assert_eq!(b.culprit.as_ref().unwrap().name, "blockers", "{name}");
                (b.blocks, b.bytes_held / b.blocks / MIB, b.bytes_unlocked / MIB)
            })
            .collect();
        assert_eq!(found, Vec::from_iter(blockers), "{name}");
    }
}

#[test]
fn what_is_outside_shows_only_where_the_device_is_known() {
    assert_eq!(failure("outside", None).verdict, "capacity");
}

#[test]
fn nothing_is_claimed_to_help_a_graph_capture() {
    for name in ["pending_free", "pending_free-expandable"] {
        assert_eq!(failure(name, None).remedies, [], "{name}");
    }
}

#[test]
fn a_limit_that_the_program_sets_is_not_lifted_by_settings() {
    for name in ["memory_limit", "memory_limit-expandable"] {
        let remedies = failure(name, None).remedies;
        assert!(!remedies.is_empty(), "{name}");
        assert!(remedies.iter().all(|remedy| !remedy.avoids_oom), "{name}: {remedies:?}");
    }
}

/// The same run under the remedy was recorded too, on a device that never runs out.
#[test]
fn a_remedy_has_the_figures_of_the_real_run() {
    let snapshot = Snapshot::read(&fixtures::pickle("2.15.0-holes-at-oom"), &|_| {}).unwrap();
    let report = analyze(&snapshot, "holes", 0, Options::default());
    let best = &report.devices[0].ooms[0].remedies[0];
    let real = recorded::of("2.15.0-holes-expandable").unwrap();
    assert_eq!((best.settings.as_str(), best.avoids_oom), ("expandable_segments:True", true));
    assert_eq!(best.peak_reserved_bytes, real.stat(0, "reserved_bytes.all.peak"));
    assert_eq!(best.device_allocs, real.stat(0, "num_device_alloc"));
}
