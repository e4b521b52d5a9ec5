//! What a gate measures does not depend on what ran before: the same job, recorded with the real allocator
//! after different warm-ups (`tests/oracle/gate.py`).

use std::collections::BTreeSet;
use std::path::Path;

use oomscope::analysis::{Options, analyze};
use oomscope::base::input::Source;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};

const MIB: u64 = 1 << 20;

/// Peaks of allocated and reserved memory: as recorded, and replayed from an empty pool.
fn peaks(name: &str) -> [(u64, u64); 2] {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gate");
    let source = Source::open(&directory.join(format!("{name}.pickle.gz"))).unwrap();
    let snapshot = Snapshot::read(&source, &|_| {}).unwrap();
    let study = Study::new(&snapshot, Scope::default());
    assert!(study.inference().is_exact, "{name}");
    let recorded = analyze(&snapshot, name, 0, Options::default()).devices[0].peak;
    let replayed = study.device(0).unwrap().peaks_from_empty().unwrap();
    [(recorded.allocated_bytes, recorded.reserved_bytes), (replayed.peak_allocated_bytes, replayed.peak_reserved_bytes)]
}

#[test]
fn warm_ups_change_what_is_recorded_and_not_what_is_measured() {
    for kind in ["", "-expandable"] {
        let all = ["none", "cached", "scattered"].map(|name| peaks(&format!("{name}{kind}")));
        let recorded: BTreeSet<u64> = all.iter().map(|[recorded, _]| recorded.1).collect();
        assert!(recorded.len() > 1, "{kind}: the recorded peaks of reserved memory are alike");
        let measured: BTreeSet<(u64, u64)> = all.iter().map(|[_, measured]| *measured).collect();
        assert_eq!(measured.len(), 1, "{kind}: {all:?}");
        // Without a warm-up the pool is as good as empty: the replay is the recording.
        assert_eq!(all[0][0], all[0][1], "{kind}");
    }
}

#[test]
fn a_job_that_keeps_more_is_seen_to_grow() {
    let [[recorded, before], [_, after]] = ["cached", "more"].map(peaks);
    // 8 MiB a step, two of them before the peak; a large block may hold up to 1 MiB more than was asked for.
    assert!((15 * MIB..=17 * MIB).contains(&(after.0 - before.0)), "{before:?} {after:?}");
    assert!(after.1 > before.1);
    assert!(before.1 > recorded.1, "the warm-up's segments hid a part of what the job needs");
}
