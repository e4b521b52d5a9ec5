//! The jobs and attempts that left snapshots: a directory may have those of several.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

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

/// The snapshots to compare with each other: of the latest job with a failure, or else the latest job, the attempt that is
/// chosen in the same way.
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
    let attempts = attempts_of(shown);
    let count = attempts.len() as u64;
    let most = attempts.into_iter().enumerate().max_by_key(|(_, attempt)| importance(attempt));
    let (index, snapshots) = most.unwrap_or_default();
    let attempts = (count > 1).then_some(Attempts { shown: index as u64 + 1, count });
    (snapshots, attempts, other_jobs)
}

/// The key of the job that wrote a snapshot. Without the recorder's key all snapshots are of one.
fn job_key(snapshot: &SnapshotReport) -> Option<(Option<&str>, Option<&str>, &[String])> {
    let recorder = snapshot.recorder.as_ref().filter(|recorder| recorder.rank.is_some())?;
    Some((recorder.run_id.as_deref(), recorder.world_size.as_deref(), &recorder.argv))
}

/// Snapshots of one job by attempt, the first attempt first: a rank has one process in each.
fn attempts_of(mut snapshots: Vec<&SnapshotReport>) -> Vec<Vec<&SnapshotReport>> {
    let ranks: BTreeSet<_> = snapshots.iter().map(|snapshot| snapshot.recorded_rank()).collect();
    if ranks.len() == snapshots.len() || ranks.contains(&None) {
        return vec![snapshots];
    }
    snapshots.sort_by_key(|snapshot| (restarts(snapshot), snapshot.time_us));
    let mut attempts: Vec<(Option<u64>, BTreeSet<_>, Vec<&SnapshotReport>)> = Vec::new();
    for snapshot in snapshots {
        let (rank, restarts) = (snapshot.recorded_rank(), restarts(snapshot));
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

fn restarts(snapshot: &SnapshotReport) -> Option<u64> {
    snapshot.recorder.as_ref()?.restarts
}

/// Sorts the job or the attempt to look at first last.
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
    let words = argv.iter().enumerate().map(|(index, word)| {
        if index == 0 { word.rsplit('/').next().unwrap_or_default().to_owned() } else { word.clone() }
    });
    let text = words.collect::<Vec<String>>().join(" ");
    if text.is_empty() { "another job".to_owned() } else { escape_name(&text).chars().take(MAX_COMMAND).collect() }
}
