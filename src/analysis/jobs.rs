//! The jobs, attempts and processes that left snapshots: a directory may have those of several, and one process may leave
//! several, whose names tell them from other ranks.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::names::{rank_in_path, without_step};
use super::snapshot::SnapshotReport;
use crate::base::units::escape_name;

/// Longer command lines are truncated, in characters.
const MAX_COMMAND: usize = 60;

/// The attempts of a job, which its launcher or a person started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attempts {
    /// The number of the attempt that the rows are of, from 1.
    pub shown: u64,
    /// The number of attempts.
    pub count: u64,
}

/// A job whose ranks are not among the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OtherJob {
    /// Its command line.
    pub command: String,
    /// The number of its processes.
    pub ranks: u64,
    /// The number of them that ran out of memory.
    pub failed: u64,
}

/// The snapshots to compare with each other: those of the attempt to look at first, of the job to look at first. That is one
/// that failed, or else the latest.
pub(super) fn first_attempt(
    snapshots: Vec<&SnapshotReport>,
) -> (Vec<&SnapshotReport>, Option<Attempts>, Vec<OtherJob>) {
    let mut jobs: BTreeMap<_, Vec<&SnapshotReport>> = BTreeMap::new();
    for snapshot in snapshots {
        jobs.entry(job_key(snapshot)).or_default().push(snapshot);
    }
    let mut jobs: Vec<Vec<&SnapshotReport>> = jobs.into_values().collect();
    let first = (0..jobs.len()).max_by_key(|index| importance(jobs.get(*index).map_or(&[][..], Vec::as_slice)));
    let shown = first.map(|index| jobs.swap_remove(index)).unwrap_or_default();
    let others = jobs.iter().map(|job| OtherJob {
        command: job.first().map_or_else(String::new, |snapshot| command(snapshot)),
        ranks: job.len() as u64,
        failed: job.iter().filter(|snapshot| has_failed(snapshot)).count() as u64,
    });
    let other_jobs = others.collect();
    let mut attempts = attempts_of(shown);
    let count = attempts.len() as u64;
    let last = (0..attempts.len()).max_by_key(|index| importance(&attempts[*index]));
    let number = last.map_or(0, |index| index as u64 + 1);
    let snapshots = last.map(|index| attempts.swap_remove(index)).unwrap_or_default();
    let attempts = (count > 1).then_some(Attempts { shown: number, count });
    (snapshots, attempts, other_jobs)
}

/// The key of the job that wrote a snapshot. Without the recorder's key all snapshots are of one.
fn job_key(snapshot: &SnapshotReport) -> Option<(Option<&str>, Option<&str>, &[String])> {
    let recorder = snapshot.recorder.as_ref().filter(|recorder| recorder.rank.is_some())?;
    Some((recorder.run_id.as_deref(), recorder.world_size.as_deref(), &recorder.argv))
}

/// Snapshots of one job by attempt, the first attempt first: a rank has one process in each.
fn attempts_of(snapshots: Vec<&SnapshotReport>) -> Vec<Vec<&SnapshotReport>> {
    let rank = |snapshot: &SnapshotReport| snapshot.recorder.as_ref().and_then(|recorder| recorder.rank.clone());
    let restarts = |snapshot: &SnapshotReport| snapshot.recorder.as_ref().and_then(|recorder| recorder.restarts);
    let mut sorted = snapshots;
    let ranks: BTreeSet<_> = sorted.iter().map(|snapshot| rank(snapshot)).collect();
    if ranks.len() == sorted.len() || ranks.contains(&None) {
        return vec![sorted];
    }
    sorted.sort_by_key(|snapshot| (restarts(snapshot), snapshot.time_us));
    let mut attempts: Vec<(Option<u64>, BTreeSet<_>, Vec<&SnapshotReport>)> = Vec::new();
    for snapshot in sorted {
        let (rank, restarts) = (rank(snapshot), restarts(snapshot));
        match attempts.last_mut() {
            Some((of, ranks, attempt)) if *of == restarts && !ranks.contains(&rank) => {
                ranks.insert(rank);
                attempt.push(snapshot);
            }
            _ => attempts.push((restarts, BTreeSet::from([rank]), vec![snapshot])),
        }
    }
    attempts.into_iter().map(|(.., attempt)| attempt).collect()
}

/// The most important has the highest.
fn importance(snapshots: &[&SnapshotReport]) -> (bool, Option<u64>) {
    let has_failure = snapshots.iter().any(|snapshot| has_failed(snapshot));
    (has_failure, snapshots.iter().filter_map(|snapshot| snapshot.time_us).max())
}

fn has_failed(snapshot: &SnapshotReport) -> bool {
    let is_recorded = snapshot.recorder.as_ref().is_some_and(|recorder| recorder.oom.is_some());
    is_recorded || snapshot.devices.iter().any(|device| device.oom_count > 0)
}

fn command(snapshot: &SnapshotReport) -> String {
    let argv = snapshot.recorder.as_ref().map(|recorder| recorder.argv.as_slice()).unwrap_or_default();
    let name = |argument: &String| argument.rsplit('/').next().unwrap_or_default().to_owned();
    let words = argv.iter().enumerate().map(|(index, word)| if index == 0 { name(word) } else { word.clone() });
    let text = words.collect::<Vec<String>>().join(" ");
    if text.is_empty() { "another job".to_owned() } else { escape_name(&text).chars().take(MAX_COMMAND).collect() }
}

/// The last snapshot of each process, in the order of the first ones.
///
/// Traces with the same fingerprint are of one process, unless their ranks differ. So are snapshots of one rank whose
/// names differ only in the training step: a full ring has lost the entries that the fingerprint needs.
pub(super) fn latest_dumps(snapshots: &[SnapshotReport]) -> Vec<&SnapshotReport> {
    let mut latest: Vec<&SnapshotReport> = Vec::new();
    let mut processes = Processes::default();
    for snapshot in snapshots {
        let names = Names::from_snapshot(snapshot);
        let Some(known) = processes.find(&names) else {
            processes.add(names, latest.len());
            latest.push(snapshot);
            continue;
        };
        if let Some(kept) = latest.get_mut(known)
            && order(kept) < order(snapshot)
        {
            *kept = snapshot;
        }
        processes.add(names, known);
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
}

/// The index of each process, by its names.
#[derive(Default)]
struct Processes {
    by_fingerprint: BTreeMap<u64, BTreeMap<Option<String>, usize>>,
    by_series: BTreeMap<String, usize>,
}

impl Processes {
    fn find(&self, names: &Names) -> Option<usize> {
        let of_series = || self.by_series.get(names.series.as_ref()?).copied();
        let of_trace = || {
            let ranks = self.by_fingerprint.get(&names.fingerprint?)?;
            // A name without a rank contradicts none.
            let without_rank = || if names.rank.is_some() { ranks.get(&None) } else { ranks.values().next() };
            ranks.get(&names.rank).or_else(without_rank).copied()
        };
        of_trace().or_else(of_series)
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

    #[test]
    fn a_failure_outranks_later_snapshots() {
        let order = |path: &str, events, oom_count| {
            super::order(&SnapshotReport {
                path: path.to_owned(),
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
        };
        assert!(order("a.pickle", 9, 0) < order("a.pickle", 5, 1));
        assert!(order("a.pickle", 5, 1) < order("a.pickle", 6, 1));
    }
}
