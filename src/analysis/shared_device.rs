//! Processes of a dry run that share a GPU. Each of them had a whole one, so their memory is summed here, by the clock
//! of their recordings.

use std::collections::BTreeMap;

use super::dry_run::{DeviceUse, DryRunReport};
use super::dry_verdict::{DryRunReason, DryRunVerdict, SharedDevice};
use super::snapshot::SnapshotReport;

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
        let pid = || Some(format!("process {}", recorder?.pid?));
        rank.or_else(pid).unwrap_or_else(|| self.snapshot.path.clone())
    }
}

/// The verdict on the GPUs that the processes of `latest` share; none if they have enough.
pub(super) fn decide_shared(latest: &[&SnapshotReport]) -> Option<(DryRunVerdict, DryRunReason)> {
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
