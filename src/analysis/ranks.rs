//! Several devices side by side: those of one snapshot, or the ranks of one job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::device::DeviceReport;
use super::names::rank;
use super::snapshot::SnapshotReport;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, counted, escape_name, percent, ratio, size};

/// Peaks within this of the median are alike.
const ALIKE: f64 = 0.1;

/// One device of one snapshot, in a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rank {
    /// The snapshot's path, as given.
    pub path: String,
    /// Its number in the job, as the recorder of `oomscope run` found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// Device number.
    pub device: u64,
    /// Failed requests.
    pub oom_count: u64,
    /// Why the last of them failed; `None` where none did.
    pub verdict: Option<Verdict>,
    /// Bytes of device memory, where they were given or recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// What the last failure shows to have been within reach: reserved and free on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach_bytes: Option<u64>,
    /// Peak of allocated memory.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved memory.
    pub peak_reserved_bytes: u64,
    /// Held from the device at the snapshot.
    pub reserved_bytes: u64,
    /// Held by the program at the snapshot.
    pub allocated_bytes: u64,
    /// 1 - allocated / reserved at the snapshot.
    pub gap_ratio: f64,
}

/// Rows whose last failure was at the same line for the same reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alike {
    /// Why.
    pub verdict: Verdict,
    /// The line, in a few words.
    pub line: String,
    /// Which rows.
    pub rows: Vec<usize>,
}

/// All of them, and the one that is unlike the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranks {
    /// The worst first: those that ran out of memory, then by peak of reserved memory.
    pub rows: Vec<Rank>,
    /// The failures, those that most rows share first.
    pub failures: Vec<Alike>,
    /// Snapshots that an earlier moment of a process left, of which a later one is among the rows.
    pub earlier_dumps: u64,
    /// The median of the peaks of allocated memory.
    pub median_peak_allocated_bytes: u64,
    /// The row whose peak of allocated memory is farthest from the median, if by more than 10%.
    pub outlier: Option<usize>,
    /// The finding in a sentence.
    pub summary: String,
}

/// Puts the devices of all snapshots side by side; `None` for fewer than two.
pub(super) fn compare_ranks(snapshots: &[SnapshotReport]) -> Option<Ranks> {
    let latest = latest_dumps(snapshots);
    let earlier_dumps = (snapshots.len() - latest.len()) as u64;
    let devices = latest.iter().flat_map(|snapshot| {
        snapshot.devices.iter().map(|device| (Rank::of(snapshot, device), device))
    });
    let mut devices: Vec<(Rank, &DeviceReport)> = devices.collect();
    if devices.len() < 2 && earlier_dumps == 0 {
        return None;
    }
    devices.sort_by_cached_key(|(row, _)| {
        let bad = (row.oom_count > 0, row.peak_reserved_bytes, row.peak_allocated_bytes);
        (Reverse(bad), rank(&row.path), row.path.clone(), row.device)
    });
    let failures = failures(&devices);
    let rows: Vec<Rank> = devices.into_iter().map(|(rank, _)| rank).collect();
    let median = median(rows.iter().map(|row| row.peak_allocated_bytes));
    let away = |rank: &Rank| rank.peak_allocated_bytes.abs_diff(median);
    let farthest = (0..rows.len()).rev().max_by_key(|i| rows.get(*i).map(away));
    let outlier = farthest.filter(|i| rows.get(*i).is_some_and(|r| ratio(away(r), median) > ALIKE));
    let names = Names { is_one_snapshot: latest.len() == 1, are_ranks: are_ranks(&rows) };
    let peaks = peaks_in_words(outlier.and_then(|index| rows.get(index)), median, names);
    let parallel = match outlier {
        Some(_) if latest.iter().any(|snapshot| is_data_parallel(snapshot)) => DATA_PARALLEL,
        _ => "",
    };
    let summary = format!("{}; {peaks}{parallel}", failures_in_words(&failures, &rows, names));
    let median_peak_allocated_bytes = median;
    Some(Ranks { rows, failures, earlier_dumps, median_peak_allocated_bytes, outlier, summary })
}

/// Of each process its last snapshot: traces that begin with the same entry at the same time are of one.
fn latest_dumps(snapshots: &[SnapshotReport]) -> Vec<&SnapshotReport> {
    let mut processes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut latest: Vec<&SnapshotReport> = Vec::new();
    for snapshot in snapshots {
        let Some(known) = snapshot.process.and_then(|process| processes.get(&process)) else {
            snapshot.process.and_then(|process| processes.insert(process, latest.len()));
            latest.push(snapshot);
            continue;
        };
        if let Some(kept) = latest.get_mut(*known).filter(|kept| kept.events < snapshot.events) {
            *kept = snapshot;
        }
    }
    latest
}

/// The lower of the two in the middle, of an even number.
fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The last failures of `devices`, alike ones together.
fn failures(devices: &[(Rank, &DeviceReport)]) -> Vec<Alike> {
    let mut alike: BTreeMap<(String, Verdict), Vec<usize>> = BTreeMap::new();
    for (row, (_, device)) in devices.iter().enumerate() {
        if let Some(oom) = device.ooms.last() {
            let line = oom.location.label();
            alike.entry((line, oom.verdict)).or_default().push(row);
        }
    }
    let group = |((line, verdict), rows)| Alike { verdict, line, rows };
    let mut failures: Vec<Alike> = alike.into_iter().map(group).collect();
    failures.sort_by_key(|failure| Reverse(failure.rows.len()));
    failures
}

/// How rows are called in a sentence.
#[derive(Clone, Copy)]
struct Names {
    is_one_snapshot: bool,
    are_ranks: bool,
}

/// Whether each row has a rank and device of its own: of several jobs they come twice.
fn are_ranks(rows: &[Rank]) -> bool {
    let mut seen = BTreeSet::new();
    rows.iter().all(|row| row.rank.is_some() && seen.insert((&row.rank, row.device)))
}

impl Names {
    fn of(self, rank: &Rank) -> String {
        if self.is_one_snapshot {
            format!("device {}", rank.device)
        } else if let (true, Some(number)) = (self.are_ranks, &rank.rank) {
            format!("rank {} (device {})", escape_name(number), rank.device)
        } else {
            format!("{} (device {})", rank.path, rank.device)
        }
    }
}

/// What `torch.nn.DataParallel` does to its devices.
const DATA_PARALLEL: &str = "; DataParallel (parallel_apply) gathers outputs and gradients on one device: \
                             DistributedDataParallel shares them evenly";

fn is_data_parallel(snapshot: &SnapshotReport) -> bool {
    let stacks = snapshot.devices.iter().flat_map(|device| &device.top_stacks);
    stacks.flat_map(|held| held.frames.iter()).any(|frame| frame.name == "parallel_apply")
}

/// `8 of 8 ran out of memory: 7 at model.py:26 in forward (capacity), rank3.pickle at ...`
fn failures_in_words(failures: &[Alike], rows: &[Rank], names: Names) -> String {
    /// Groups that are named.
    const NAMED: usize = 3;
    let failed: usize = failures.iter().map(|failure| failure.rows.len()).sum();
    if failed == 0 {
        return "none ran out of memory".to_owned();
    }
    let who = |failure: &Alike| match failure.rows.as_slice() {
        [row] => rows.get(*row).map_or_else(String::new, |row| names.of(row)),
        _ if failures.len() == 1 => String::new(),
        several => several.len().to_string(),
    };
    let groups = failures.iter().take(NAMED).map(|failure| {
        format!("{} at {} ({})", who(failure), failure.line, failure.verdict).trim().to_owned()
    });
    let more = failures.len().checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!("{} elsewhere", counted(more as u64, "more group")));
    let groups: Vec<String> = groups.chain(more).collect();
    format!(
        "{} of {} ran out of memory: {}",
        count(failed as u64),
        count(rows.len() as u64),
        groups.join(", ")
    )
}

fn peaks_in_words(outlier: Option<&Rank>, median: u64, names: Names) -> String {
    let Some(rank) = outlier else {
        let alike = percent(ALIKE);
        return format!(
            "all peaks of allocated memory lie within {alike} of the median of {}",
            size(median)
        );
    };
    let peak = rank.peak_allocated_bytes;
    format!(
        "{} stands out: it peaks at {} allocated, {} {} than the median of {}",
        names.of(rank),
        size(peak),
        percent(ratio(peak.abs_diff(median), median)),
        if peak > median { "more" } else { "less" },
        size(median)
    )
}

impl Rank {
    fn of(snapshot: &SnapshotReport, device: &DeviceReport) -> Self {
        Self {
            path: snapshot.path.clone(),
            rank: snapshot.recorder.as_ref().and_then(|recorder| recorder.rank.clone()),
            device: device.device,
            oom_count: device.oom_count,
            verdict: device.ooms.last().map(|oom| oom.verdict),
            capacity_bytes: device.capacity_bytes,
            reach_bytes: device
                .ooms
                .last()
                .map(|oom| oom.reserved_bytes.saturating_add(oom.device_free_bytes)),
            peak_allocated_bytes: device.peak.allocated_bytes,
            peak_reserved_bytes: device.peak.reserved_bytes,
            reserved_bytes: device.memory.reserved_bytes,
            allocated_bytes: device.memory.allocated_bytes,
            gap_ratio: device.memory.fragmentation.gap_ratio,
        }
    }
}
