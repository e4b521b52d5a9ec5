//! The report on all snapshots. In a dry run each process has a GPU of its own; if several would share one, their
//! memory is summed here, by the clock of their recordings.

use std::collections::BTreeMap;

use serde::Serialize;

use super::device::DeviceReport;
use super::dry_run::{DeviceUse, DryRunCertainty, DryRunReport};
use super::dry_verdict::{DryRunReason, DryRunVerdict, ProgramEnd, SharedDevice, decide_job};
use super::latest::latest_dumps;
use super::ranks::{Ranks, compare_ranks};
use super::snapshot::SnapshotReport;

/// The JSON of `oomscope analyze`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct AnalyzeReport {
    /// One report per snapshot that could be read, in the order given.
    pub snapshots: Vec<SnapshotReport>,
    /// Number of rows in tables of ranks and devices on a page.
    #[serde(skip)]
    pub top: usize,
    /// All devices side by side; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// The verdict on all processes of a dry run; absent in a run with a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<JobVerdict>,
    /// Files that could not be read; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl AnalyzeReport {
    /// Compares the devices of `snapshots` and summarizes them; `top` is the number of rows in tables.
    pub fn new(snapshots: Vec<SnapshotReport>, unreadable: Vec<Unreadable>, top: usize) -> Self {
        let ranks = compare_ranks(&snapshots);
        let dry_run = JobVerdict::new(&snapshots, None, 0);
        Self { snapshots, top, ranks, dry_run, unreadable }
    }

    /// The devices of all snapshots.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceReport> {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.devices)
    }

    /// The last snapshot of each process.
    pub fn latest_snapshots(&self) -> Vec<&SnapshotReport> {
        latest_dumps(&self.snapshots)
    }

    /// Decides again, with the end of the command that the snapshots come from, and the number of its processes that
    /// left no recording of their end.
    pub fn set_end(&mut self, end: ProgramEnd, lost: usize) {
        self.dry_run = JobVerdict::new(&self.snapshots, Some(end), lost);
    }
}

/// The verdict on a dry run.
#[derive(Debug, Clone, Serialize)]
pub struct JobVerdict {
    /// Whether the job would fit.
    pub verdict: DryRunVerdict,
    /// Why, in a sentence.
    pub reason: DryRunReason,
    /// How closely the requests match those on a GPU: the least certain of the processes.
    pub certainty: DryRunCertainty,
}

impl JobVerdict {
    fn new(snapshots: &[SnapshotReport], end: Option<ProgramEnd>, lost: usize) -> Option<Self> {
        let latest = latest_dumps(snapshots);
        let processes: Vec<&DryRunReport> = latest.iter().filter_map(|snapshot| snapshot.dry_run.as_ref()).collect();
        let certainty = processes.iter().map(|process| process.certainty).max()?;
        let verdicts = processes.iter().map(|process| (process.verdict, process.reason.clone()));
        let was_ready = processes.iter().filter_map(|process| process.server()).any(|server| server.ready);
        // A server that was ready has taken its memory, however its processes end.
        let lost = (lost > 0 && !was_ready).then_some((DryRunVerdict::NoVerdict, DryRunReason::Lost(lost)));
        let verdicts = verdicts.chain(decide_shared(&latest)).chain(lost);
        let (verdict, reason) = decide_job(verdicts, end.filter(|_| !was_ready))?;
        Some(Self { verdict, reason, certainty })
    }
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Path as given on the command line.
    pub path: String,
    /// The error message.
    pub message: String,
}

/// A process on a device that others use as well.
struct Sharer<'r> {
    snapshot: &'r SnapshotReport,
    dry_run: &'r DryRunReport,
    used: &'r DeviceUse,
}

impl Sharer<'_> {
    fn peak_bytes(&self) -> u64 {
        self.used.peak_bytes.saturating_add(self.dry_run.outside_bytes())
    }

    fn name(&self) -> String {
        let recorder = self.snapshot.recorder.as_ref();
        let rank = recorder.and_then(|info| info.rank.as_ref()).map(|rank| format!("rank {rank}"));
        rank.or_else(|| Some(format!("process {}", recorder?.pid?))).unwrap_or_else(|| self.snapshot.path.clone())
    }
}

/// The verdict on the GPUs that the processes of `latest` share; none if they have enough.
fn decide_shared(latest: &[&SnapshotReport]) -> Option<(DryRunVerdict, DryRunReason)> {
    let mut devices: BTreeMap<_, Vec<Sharer<'_>>> = BTreeMap::new();
    for snapshot in latest {
        let (Some(dry_run), Some(recorder)) = (&snapshot.dry_run, &snapshot.recorder) else { continue };
        for used in dry_run.device_uses.iter().filter(|used| used.peak_bytes > 0) {
            // Without a list of visible devices they have the numbers of the host.
            let on_host = recorder.host_device(used.device);
            let visible = if on_host.is_some() { None } else { recorder.visible_devices.as_deref() };
            let key = (recorder.host.as_deref(), visible, on_host.unwrap_or(used.device));
            devices.entry(key).or_default().push(Sharer { snapshot, dry_run, used });
        }
    }
    let found = devices.values().filter_map(|sharers| exceeded(sharers));
    // The first of those that are certain.
    let worst = found.min_by_key(|shared| !shared.is_simultaneous)?;
    let verdict = if worst.is_simultaneous { DryRunVerdict::WouldNotFit } else { DryRunVerdict::MayFit };
    Some((verdict, DryRunReason::Shared(Box::new(worst))))
}

/// The bytes that `sharers` hold of their device, if it has less.
fn exceeded(sharers: &[Sharer<'_>]) -> Option<SharedDevice> {
    let total_bytes = sharers.iter().map(|sharer| sharer.dry_run.total_bytes).min()?;
    let peaks: Vec<u64> = sharers.iter().map(Sharer::peak_bytes).collect();
    // A process alone has its own verdict.
    if sharers.len() < 2 || sum(&peaks) <= total_bytes {
        return None;
    }
    let is_simultaneous = sharers.iter().all(|sharer| !sharer.used.steps.is_empty());
    let held = if is_simultaneous { most_at_once(sharers) } else { peaks };
    let holders = sharers.iter().zip(&held).filter(|(_, bytes)| **bytes > 0);
    let processes: Vec<(String, u64)> = holders.map(|(sharer, bytes)| (sharer.name(), *bytes)).collect();
    let device = sharers.first()?.used.device;
    let is_exceeded = processes.len() > 1 && sum(&held) > total_bytes;
    is_exceeded.then_some(SharedDevice { device, total_bytes, processes, is_simultaneous })
}

/// The bytes of each process when they hold most together.
fn most_at_once(sharers: &[Sharer<'_>]) -> Vec<u64> {
    let mut events: Vec<(u64, u64, usize)> = Vec::new();
    for (index, sharer) in sharers.iter().enumerate() {
        let outside = sharer.dry_run.outside_bytes();
        let (end, steps) = sharer.used.steps.split_last().map_or((None, &[][..]), |(end, steps)| (Some(end), steps));
        events.extend(steps.iter().map(|(time, bytes)| (*time, bytes.saturating_add(outside), index)));
        events.extend(end.map(|(time, _)| (*time, 0, index)));
    }
    events.sort_unstable(); // at one time, memory is returned first
    let mut held = vec![0; sharers.len()];
    let mut most = held.clone();
    for (_, bytes, index) in events {
        if let Some(place) = held.get_mut(index) {
            *place = bytes;
        }
        if sum(&held) > sum(&most) {
            most.clone_from(&held);
        }
    }
    most
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}
