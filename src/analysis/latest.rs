//! The last snapshot of each process: one process may leave several, whose names tell them from other ranks.

use std::collections::BTreeMap;

use super::names::{rank_in_path, without_step};
use super::snapshot::SnapshotReport;

/// The last snapshot of each process, in the order of the first ones.
///
/// Traces with the same fingerprint are of one process, unless their ranks differ. So are snapshots of one rank whose
/// names differ only in the training step: a full ring has lost the entries that the fingerprint needs.
pub(super) fn latest_dumps(snapshots: &[SnapshotReport]) -> Vec<&SnapshotReport> {
    let mut latest: Vec<&SnapshotReport> = Vec::new();
    let mut processes = Processes::default();
    for snapshot in snapshots {
        let names = Names::from_snapshot(snapshot);
        let index = processes.find(&names).unwrap_or(latest.len());
        match latest.get_mut(index) {
            Some(kept) if order(kept) < order(snapshot) => *kept = snapshot,
            Some(_) => {}
            None => latest.push(snapshot),
        }
        processes.add(names, index);
    }
    latest
}

/// Sorts the snapshot to keep of one process last: a later one may have lost the failure.
fn order(snapshot: &SnapshotReport) -> (bool, u64, u64) {
    let failed = snapshot.devices.iter().any(|device| device.oom_count > 0);
    (failed, without_step(&snapshot.path).map_or(0, |(_, step)| step), snapshot.events)
}

/// The names of the process that wrote a snapshot.
struct Names {
    fingerprint: Option<u64>,
    rank: Option<String>,
    /// The path without the training step, if it has a rank.
    series: Option<String>,
}

impl Names {
    fn from_snapshot(snapshot: &SnapshotReport) -> Self {
        let in_path = rank_in_path(&snapshot.path).map(|rank| rank.to_string());
        let series = in_path.as_ref().and_then(|_| Some(without_step(&snapshot.path)?.0));
        Self { fingerprint: snapshot.process, rank: snapshot.recorded_rank().map(str::to_owned).or(in_path), series }
    }
}

/// The index of each process, by its names.
#[derive(Default)]
struct Processes {
    by_fingerprint: BTreeMap<u64, BTreeMap<Option<String>, usize>>,
    by_series: BTreeMap<String, usize>,
}

impl Processes {
    fn find(&self, names: &Names) -> Option<usize> {
        self.find_by_fingerprint(names).or_else(|| self.by_series.get(names.series.as_ref()?).copied())
    }

    fn find_by_fingerprint(&self, names: &Names) -> Option<usize> {
        let ranks = self.by_fingerprint.get(&names.fingerprint?)?;
        // A name without a rank contradicts none.
        let compatible = if names.rank.is_some() { ranks.get(&None) } else { ranks.values().next() };
        ranks.get(&names.rank).or(compatible).copied()
    }

    fn add(&mut self, names: Names, index: usize) {
        if let Some(fingerprint) = names.fingerprint {
            self.by_fingerprint.entry(fingerprint).or_default().entry(names.rank).or_insert(index);
        }
        if let Some(series) = names.series {
            self.by_series.entry(series).or_insert(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::device::DeviceReport;

    fn order_of(events: u64, oom_count: u64) -> impl Ord {
        order(&SnapshotReport {
            path: "a.pickle".to_owned(),
            size_bytes: 0,
            process: None,
            events,
            time_us: None,
            torch_version: String::new(),
            settings: serde_json::Map::new(),
            settings_string: None,
            found_settings: Vec::new(),
            truncated: false,
            warnings: Vec::new(),
            host: None,
            recorder: None,
            dry_run: None,
            devices: vec![DeviceReport { oom_count, ..DeviceReport::default() }],
        })
    }

    #[test]
    fn a_failure_outranks_later_snapshots() {
        assert!(order_of(9, 0) < order_of(5, 1));
        assert!(order_of(5, 1) < order_of(6, 1));
    }
}
