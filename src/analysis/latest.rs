//! The last snapshot of each process: one process may leave several, and their names tell them from other ranks.

use super::names::{rank_in_path, without_step};
use super::snapshot::SnapshotReport;

/// The last snapshot of each process, in the order of the first ones.
///
/// Traces with the same fingerprint are of one process, unless their ranks differ. So are snapshots of one rank whose
/// names differ only in the training step: a full ring has lost the entries that the fingerprint needs.
pub(super) fn latest_dumps(snapshots: &[SnapshotReport]) -> Vec<&SnapshotReport> {
    let mut latest: Vec<&SnapshotReport> = Vec::new();
    let mut known: Vec<(Names, usize)> = Vec::new();
    for snapshot in snapshots {
        let names = Names::from_snapshot(snapshot);
        let process = names.find(&known).unwrap_or(latest.len());
        match latest.get_mut(process) {
            Some(kept) if order(kept) < order(snapshot) => *kept = snapshot,
            Some(_) => {}
            None => latest.push(snapshot),
        }
        known.push((names, process));
    }
    latest
}

/// The snapshot to keep of one process has the highest: a later one may have lost the failure.
fn order(snapshot: &SnapshotReport) -> (bool, u64, u64) {
    let failed = snapshot.devices.iter().any(|device| device.oom_count > 0);
    let step = without_step(&snapshot.path).map_or(0, |(_, step)| step);
    (failed, step, snapshot.events)
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
        let recorded = snapshot.recorder.as_ref().and_then(|recorder| recorder.rank.clone());
        Self { fingerprint: snapshot.process, rank: recorded.or(in_path), series }
    }

    /// The process of these names among those that are `known` by theirs.
    fn find(&self, known: &[(Self, usize)]) -> Option<usize> {
        let is_same_trace = |other: &Self| self.fingerprint.is_some() && other.fingerprint == self.fingerprint;
        let of_trace = || known.iter().filter(|(other, _)| is_same_trace(other));
        // A name without a rank contradicts none.
        let without_rank = || of_trace().filter(|(other, _)| self.rank.is_none() || other.rank.is_none());
        let of_series = || known.iter().find(|(other, _)| self.series.is_some() && other.series == self.series);
        let of_rank = of_trace().find(|(other, _)| other.rank == self.rank);
        let found = of_rank.or_else(|| without_rank().min_by(|(a, _), (b, _)| a.rank.cmp(&b.rank)));
        Some(found.or_else(of_series)?.1)
    }
}
