//! Several devices side by side: of one snapshot, or of all ranks of a job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::device::DeviceReport;
use super::latest::latest_dumps;
use super::names::rank_in_path;
use super::snapshot::SnapshotReport;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, counted, escape_name, percent, ratio, size};

/// A row is an outlier if its peak differs from the median by more than this share.
const OUTLIER_RATIO: f64 = 0.1;

/// One device of one snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankRow {
    /// Path of the snapshot as given.
    pub path: String,
    /// Rank in the job as `oomscope run` recorded it; absent if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
    /// Device number.
    pub device: u64,
    /// Number of failed requests.
    pub oom_count: u64,
    /// Whether the recorder saw a request fail, with or without a history.
    #[serde(skip)]
    pub has_recorded_failure: bool,
    /// Why the last of them failed, by free bytes alone; null if none failed.
    pub verdict: Option<Verdict>,
    /// Why it failed, after what was replayed and what grows; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<Verdict>,
    /// Device memory in bytes, as given or recorded; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Reserved plus free bytes at the last failure: the memory within reach; absent if none failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach_bytes: Option<u64>,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Reserved bytes at the snapshot.
    pub reserved_bytes: u64,
    /// Allocated bytes at the snapshot.
    pub allocated_bytes: u64,
    /// 1 - allocated / reserved, at the snapshot.
    pub gap_ratio: f64,
}

/// Rows whose last failure was at the same line with the same verdict and conclusion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureGroup {
    /// The common verdict, by free bytes alone.
    pub verdict: Verdict,
    /// The common conclusion, after what was replayed and what grows.
    pub conclusion: Verdict,
    /// Label of the common line.
    pub line: String,
    /// Indexes of the rows.
    pub rows: Vec<usize>,
}

/// All devices, and the outlier among them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranks {
    /// Worst first: failures before others, then by peak of reserved memory.
    pub rows: Vec<RankRow>,
    /// Groups of similar failures, largest group first.
    pub failures: Vec<FailureGroup>,
    /// Number of snapshots that are left out because a later one of the same process is among the rows.
    pub earlier_dumps: u64,
    /// Median of the peaks of allocated bytes.
    pub median_peak_allocated_bytes: u64,
    /// Index of the row whose peak of allocated memory is farthest from the median; null if none differs by more
    /// than 10%.
    pub outlier: Option<usize>,
    /// The finding in one sentence.
    pub summary: String,
    /// The part of it that compares the peaks.
    #[serde(skip)]
    pub peaks: String,
}

/// Compares the devices of all snapshots; `None` if there are fewer than two.
pub(super) fn compare_ranks(snapshots: &[SnapshotReport]) -> Option<Ranks> {
    let latest = latest_dumps(snapshots);
    let earlier_dumps = (snapshots.len() - latest.len()) as u64;
    let devices = latest
        .iter()
        .flat_map(|snapshot| snapshot.devices.iter().map(|device| (RankRow::new(snapshot, device), device)));
    let mut devices: Vec<(RankRow, &DeviceReport)> = devices.collect();
    if devices.len() < 2 && earlier_dumps == 0 {
        return None;
    }
    devices.sort_by_cached_key(|(row, _)| {
        let bad = (row.oom_count > 0, row.peak_reserved_bytes, row.peak_allocated_bytes);
        (Reverse(bad), rank_in_path(&row.path), row.path.clone(), row.device)
    });
    let failures = failures(&devices);
    let has_history =
        |device: &DeviceReport| device.timeline.as_ref().is_some_and(|timeline| timeline.trace_entries > 1);
    let devices_with_history = devices.iter().filter(|(_, device)| has_history(device)).count();
    let rows: Vec<RankRow> = devices.into_iter().map(|(rank, _)| rank).collect();
    let median = median(rows.iter().map(|row| row.peak_allocated_bytes));
    let distance = |row: &RankRow| row.peak_allocated_bytes.abs_diff(median);
    let farthest = (0..rows.len()).rev().max_by_key(|i| rows.get(*i).map(distance));
    let is_outlier = |row: &RankRow| ratio(distance(row), median) > OUTLIER_RATIO;
    let outlier = farthest.filter(|i| rows.get(*i).is_some_and(is_outlier));
    let names = RowNames { is_one_snapshot: latest.len() == 1, are_ranks: are_ranks(&rows) };
    let with_history = devices_with_history;
    let peaks = match with_history {
        0 if median == 0 => "nor are the peaks".to_owned(),
        _ if median == 0 => "most hold no memory at their peak".to_owned(),
        _ => describe_peaks(outlier.and_then(|index| rows.get(index)), median, with_history > 0, names),
    };
    let parallel = match outlier {
        Some(_) if latest.iter().any(|snapshot| is_data_parallel(snapshot)) => DATA_PARALLEL,
        _ => "",
    };
    let peaks = peaks + parallel;
    let summary = format!("{}; {peaks}", describe_failures(&failures, &rows, with_history, names));
    let median_peak_allocated_bytes = median;
    Some(Ranks { rows, failures, earlier_dumps, median_peak_allocated_bytes, outlier, summary, peaks })
}

/// The median; the lower of the two middle values if their number is even, 0 if it is 0.
fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// The last failures of `devices`, grouped by line, verdict and conclusion.
fn failures(devices: &[(RankRow, &DeviceReport)]) -> Vec<FailureGroup> {
    let mut groups: BTreeMap<(String, Verdict, Verdict), Vec<usize>> = BTreeMap::new();
    for (row, (_, device)) in devices.iter().enumerate() {
        if let Some(oom) = device.ooms.last() {
            let line = oom.location.label();
            let conclusion = device.conclusion.unwrap_or(oom.verdict); // a device with a failure has one
            groups.entry((line, oom.verdict, conclusion)).or_default().push(row);
        }
    }
    let group = |((line, verdict, conclusion), rows)| FailureGroup { verdict, conclusion, line, rows };
    let mut failures: Vec<FailureGroup> = groups.into_iter().map(group).collect();
    failures.sort_by_key(|failure| Reverse(failure.rows.len()));
    failures
}

/// How to name rows in a sentence.
#[derive(Clone, Copy)]
struct RowNames {
    is_one_snapshot: bool,
    are_ranks: bool,
}

/// Whether rank and device identify each row: with several jobs they would repeat.
fn are_ranks(rows: &[RankRow]) -> bool {
    let mut seen = BTreeSet::new();
    rows.iter().all(|row| row.rank.is_some() && seen.insert((&row.rank, row.device)))
}

impl RowNames {
    fn label(self, rank: &RankRow) -> String {
        if self.is_one_snapshot {
            format!("GPU {}", rank.device)
        } else if let (true, Some(number)) = (self.are_ranks, &rank.rank) {
            format!("rank {} (GPU {})", escape_name(number), rank.device)
        } else {
            format!("{} (GPU {})", rank.path, rank.device)
        }
    }
}

/// Appended if `torch.nn.DataParallel` explains the outlier.
const DATA_PARALLEL: &str = "; DataParallel gathers outputs and gradients on one device";

fn is_data_parallel(snapshot: &SnapshotReport) -> bool {
    snapshot.devices.iter().any(|device| device.data_parallel.is_some())
}

/// `8 of 8 ran out of memory: 7 at model.py:26 in forward (capacity), rank3.pickle at ...`
fn describe_failures(failures: &[FailureGroup], rows: &[RankRow], with_history: usize, names: RowNames) -> String {
    /// Maximum number of groups in the sentence.
    const MAX_GROUPS: usize = 3;
    let failed: usize = failures.iter().map(|failure| failure.rows.len()).sum();
    if failed == 0 {
        return match with_history {
            0 => match rows.iter().filter(|row| row.has_recorded_failure).count() {
                0 => "no history was kept, so failures are not known".to_owned(),
                some => format!("{} of {} ran out of memory; no history was kept", count(some as u64), rows.len()),
            },
            all if all == rows.len() => "none ran out of memory".to_owned(),
            some => format!("none of the {} with a history ran out of memory", count(some as u64)),
        };
    }
    let who = |failure: &FailureGroup| match failure.rows.as_slice() {
        [row] => rows.get(*row).map_or_else(String::new, |row| names.label(row)),
        _ if failures.len() == 1 => String::new(),
        several => several.len().to_string(),
    };
    let listed = failures
        .iter()
        .take(MAX_GROUPS)
        .map(|failure| format!("{} at {} ({})", who(failure), failure.line, failure.conclusion).trim().to_owned());
    let more = failures.len().checked_sub(MAX_GROUPS).filter(|more| *more > 0);
    let more = more.map(|more| format!("{} elsewhere", counted(more as u64, "more group")));
    let groups: Vec<String> = listed.chain(more).collect();
    format!("{} of {} ran out of memory: {}", count(failed as u64), count(rows.len() as u64), groups.join(", "))
}

fn describe_peaks(outlier: Option<&RankRow>, median: u64, are_peaks: bool, names: RowNames) -> String {
    // Without a history, the memory of the snapshot itself is compared.
    let (figures, verb) =
        if are_peaks { ("peaks of allocated memory", "peaks at") } else { ("allocated sizes", "has") };
    let Some(rank) = outlier else {
        let limit = percent(OUTLIER_RATIO);
        return format!("all {figures} lie within {limit} of the median of {}", size(median));
    };
    let peak = rank.peak_allocated_bytes;
    format!(
        "{} stands out: it {verb} {} allocated, {} {} than the median of {}",
        names.label(rank),
        size(peak),
        percent(ratio(peak.abs_diff(median), median)),
        if peak > median { "more" } else { "less" },
        size(median)
    )
}

impl RankRow {
    fn new(snapshot: &SnapshotReport, device: &DeviceReport) -> Self {
        Self {
            path: snapshot.path.clone(),
            rank: snapshot.recorder.as_ref().and_then(|recorder| recorder.rank.clone()),
            device: device.device,
            oom_count: device.oom_count,
            has_recorded_failure: snapshot.recorder.as_ref().is_some_and(|it| it.failure_on(device.device).is_some()),
            verdict: device.ooms.last().map(|oom| oom.verdict),
            conclusion: device.conclusion,
            capacity_bytes: device.capacity_bytes,
            reach_bytes: device.ooms.last().map(|oom| oom.reserved_bytes.saturating_add(oom.device_free_bytes)),
            peak_allocated_bytes: device.peak.allocated_bytes,
            peak_reserved_bytes: device.peak.reserved_bytes,
            reserved_bytes: device.memory.reserved_bytes,
            allocated_bytes: device.memory.allocated_bytes,
            gap_ratio: device.memory.fragmentation.gap_ratio,
        }
    }
}
