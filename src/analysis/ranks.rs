//! Several devices side by side: of one snapshot, or of all ranks of a job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use itertools::Itertools as _;
use serde::Serialize;

use super::device::DeviceReport;
use super::jobs::{Attempts, OtherJob, first_attempt};
use super::latest::latest_dumps;
use super::names::rank_in_path;
use super::peers::{Peer, RankDifference, find_difference};
use super::rank_row::{OUTLIER_RATIO, RankRow, median, rows_of};
use super::snapshot::SnapshotReport;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, counted, escape_name, percent, ratio, size};

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
    /// Rows of equal ranks: their requests failed at the same line or none did, and they hold as much. By their first row.
    pub groups: Vec<Vec<usize>>,
    /// How the rank to look at first differs from its peers; absent if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<RankDifference>,
    /// The attempts of this job, if it was started again; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
    /// Jobs whose snapshots are not among the rows; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_jobs: Vec<OtherJob>,
    /// Number of snapshots that are left out because a later one of the same process is among the rows.
    pub earlier_dumps: u64,
    /// Median of the peaks of allocated bytes.
    pub median_peak_allocated_bytes: u64,
    /// Index of the row whose peak of allocated memory is farthest from the median; null if none differs by more
    /// than 10%.
    pub outlier: Option<usize>,
    /// The finding in one sentence.
    pub summary: String,
    /// The part of it about failures.
    #[serde(skip)]
    pub failed: String,
    /// The part of it that compares the peaks.
    #[serde(skip)]
    pub peaks: String,
}

/// Compares the devices of all snapshots; `None` if there are fewer than two.
pub(super) fn compare_ranks(snapshots: &[SnapshotReport]) -> Option<Ranks> {
    let latest = latest_dumps(snapshots);
    let earlier_dumps = (snapshots.len() - latest.len()) as u64;
    let (latest, attempts, other_jobs) = first_attempt(latest);
    let mut devices: Vec<(RankRow, &DeviceReport)> = latest.iter().flat_map(|snapshot| rows_of(snapshot)).collect();
    if devices.len() < 2 && earlier_dumps == 0 && attempts.is_none() && other_jobs.is_empty() {
        return None;
    }
    devices.sort_by_cached_key(|(row, _)| {
        let bad = (row.has_failed(), Reverse(row.failed_at), row.peak_reserved_bytes, row.peak_allocated_bytes);
        (Reverse(bad), rank_in_path(&row.path), row.path.clone(), row.device)
    });
    let failures = failures(&devices);
    let with_history = devices.iter().filter(|(_, device)| device.history().is_some()).count();
    let (rows, reports): (Vec<RankRow>, Vec<&DeviceReport>) = devices.into_iter().unzip();
    // A second device of a rank has no peers. Devices of one process are compared with each other.
    let compared = rows.iter().enumerate().filter(|(_, row)| row.is_own_device || latest.len() == 1);
    let median = median(compared.clone().map(|(_, row)| row.peak_allocated_bytes));
    let distances = compared.map(|(index, row)| (index, row.peak_allocated_bytes.abs_diff(median)));
    let farthest = distances.rev().max_by_key(|(_, distance)| *distance);
    let outlier = farthest.filter(|(_, distance)| ratio(*distance, median) > OUTLIER_RATIO).map(|(index, _)| index);
    let names = RowNames::new(&rows);
    let are_ranks = names.kind == RowKind::Ranks;
    // By what they hold and how they ended; each group begins with its worst.
    let groups = group(0..rows.len(), |first, row| are_ranks && rows[*first].is_equal(&rows[*row]));
    let peers: Vec<Peer<'_>> = rows.iter().zip(&reports).map(|(row, device)| Peer { row, device }).collect();
    let larger = outlier.filter(|index| rows.get(*index).is_some_and(|row| row.peak_allocated_bytes > median));
    let difference = if are_ranks { find_difference(&peers, &groups, larger) } else { None };
    let failed = describe_failures(&failures, &rows, with_history, names);
    let (peaks, summary) = if with_history == 0 && median == 0 {
        ("not known: no history was kept".to_owned(), format!("{failed}; the peaks are not known"))
    } else {
        let peaks = describe_peaks(outlier.and_then(|index| rows.get(index)), median, with_history > 0, names);
        let summary = format!("{failed}; {peaks}");
        (peaks, summary)
    };
    Some(Ranks {
        rows,
        failures,
        groups,
        difference,
        attempts,
        other_jobs,
        earlier_dumps,
        median_peak_allocated_bytes: median,
        outlier,
        summary,
        failed,
        peaks,
    })
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
    let groups = groups.into_iter();
    let failures = groups.map(|((line, verdict, conclusion), rows)| FailureGroup { verdict, conclusion, line, rows });
    failures.sorted_by_key(|failure| Reverse(failure.rows.len())).collect()
}

/// The kind of rows, which decides how a sentence names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    /// Devices of one process.
    Devices,
    /// Ranks of one job.
    Ranks,
    /// Snapshots without the numbers of ranks, or of several jobs.
    Snapshots,
}

/// How to name rows in a sentence.
#[derive(Debug, Clone, Copy)]
struct RowNames {
    kind: RowKind,
    has_hosts: bool,
    /// A rank has several rows.
    has_devices: bool,
}

impl RowNames {
    fn new(rows: &[RankRow]) -> Self {
        let paths: BTreeSet<&str> = rows.iter().map(|row| &*row.path).collect();
        let hosts: BTreeSet<&Option<String>> = rows.iter().map(|row| &row.host).collect();
        let have_ranks = rows.iter().all(|row| row.rank.is_some());
        let kind = match () {
            () if paths.len() == 1 => RowKind::Devices,
            () if have_ranks && rows.iter().map(|row| (&row.rank, &row.host, row.device)).all_unique() => {
                RowKind::Ranks
            }
            () => RowKind::Snapshots,
        };
        Self { kind, has_hosts: hosts.len() > 1, has_devices: paths.len() < rows.len() }
    }

    fn label(self, row: &RankRow) -> String {
        match (self.kind, &row.rank) {
            (RowKind::Devices, _) => format!("GPU {}", row.device),
            (RowKind::Ranks, Some(rank)) => {
                let host = row.host.as_ref().filter(|_| self.has_hosts);
                let host = host.map_or_else(String::new, |host| format!(" on {}", escape_name(host)));
                let gpu = if self.has_devices { format!(" (GPU {})", row.device) } else { String::new() };
                format!("rank {}{host}{gpu}", escape_name(rank))
            }
            _ => format!("{} (GPU {})", row.path, row.device),
        }
    }
}

impl Ranks {
    /// The name of a row in a sentence.
    pub fn label(&self, row: usize) -> String {
        self.rows.get(row).map_or_else(String::new, |found| RowNames::new(&self.rows).label(found))
    }

    /// The names of `rows` in a sentence: `ranks 1 to 3 and 7`, or `61 ranks`.
    pub fn labels(&self, rows: &[usize]) -> String {
        let numbers: BTreeSet<u64> = rows.iter().filter_map(|row| self.number(*row)).collect();
        match rows {
            [row] => self.label(*row),
            _ if numbers.len() < rows.len() => counted(rows.len() as u64, "device"),
            _ => {
                let foreign = rows.first().and_then(|row| self.rows.get(*row)).filter(|row| !row.is_own_device);
                let gpu = foreign.map_or_else(String::new, |row| format!(" (GPU {})", row.device));
                format!("{}{gpu}", list_of_ranks(numbers))
            }
        }
    }

    /// The ranks that have `rows`, whatever the devices.
    pub fn holders(&self, rows: &[usize]) -> String {
        let numbers = rows.iter().map(|row| self.number(*row)).collect::<Option<_>>();
        numbers.map_or_else(|| counted(rows.len() as u64, "rank"), list_of_ranks)
    }

    fn number(&self, row: usize) -> Option<u64> {
        self.rows.get(row)?.rank.as_ref()?.parse().ok()
    }

    /// Whether the rows are ranks of one job, each with its number.
    pub fn are_numbered(&self) -> bool {
        RowNames::new(&self.rows).kind == RowKind::Ranks
    }

    /// Whether the rows are those of several hosts.
    pub fn has_several_hosts(&self) -> bool {
        RowNames::new(&self.rows).has_hosts
    }

    /// The number of ranks, and of those that ran out of memory: a process is one, whatever devices it uses.
    pub fn count_ranks(&self) -> (u64, u64) {
        (
            count_processes(&self.rows, &|_| true),
            count_processes(&self.rows, &|row| self.rows.get(row).is_some_and(RankRow::has_failed)),
        )
    }
}

/// The number of processes with a row that `is_wanted` selects; of the devices of one process, their number.
fn count_processes(rows: &[RankRow], is_wanted: &dyn Fn(usize) -> bool) -> u64 {
    let wanted = rows.iter().enumerate().filter(|(index, _)| is_wanted(*index)).map(|(_, row)| &row.path);
    let is_one = rows.iter().all(|row| Some(&row.path) == rows.first().map(|first| &first.path));
    if is_one { wanted.clone().count() as u64 } else { wanted.collect::<BTreeSet<_>>().len() as u64 }
}

/// `ranks 1 to 3 and 7`; with many runs of numbers only how many.
fn list_of_ranks(numbers: BTreeSet<u64>) -> String {
    /// Runs of numbers in a sentence, at most.
    const MAX_RUNS: usize = 3;
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let runs: Vec<&[u64]> = numbers.chunk_by(|number, next| number + 1 == *next).collect();
    if runs.len() > MAX_RUNS {
        return counted(numbers.len() as u64, "rank");
    }
    let runs = runs.iter().map(|run| match run {
        [first, last] => format!("{first} and {last}"),
        [first, .., last] => format!("{first} to {last}"),
        one => one.iter().map(u64::to_string).collect(),
    });
    let mut runs: Vec<String> = runs.collect();
    let last = runs.pop().unwrap_or_default();
    let start = if runs.is_empty() { String::new() } else { format!("{} and ", runs.join(", ")) };
    format!("{} {start}{last}", if numbers.len() == 1 { "rank" } else { "ranks" })
}

/// Groups of `all` that are the same, in the order of their first.
pub(crate) fn group<T>(all: impl IntoIterator<Item = T>, is_same: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|group| is_same(&group[0], &one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// `8 of 8 ran out of memory: 7 at model.py:26 in forward (capacity), rank3.pickle at ...`
fn describe_failures(failures: &[FailureGroup], rows: &[RankRow], with_history: usize, names: RowNames) -> String {
    /// Maximum number of groups in the sentence.
    const MAX_GROUPS: usize = 3;
    let all = count_processes(rows, &|_| true);
    let failed = count_processes(rows, &|row| failures.iter().any(|failure| failure.rows.contains(&row)));
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
    let listed = failures.iter().take(MAX_GROUPS).map(|failure| {
        let who = match failure.rows.as_slice() {
            [row] => rows.get(*row).map_or_else(String::new, |row| names.label(row)),
            _ if failures.len() == 1 => String::new(),
            several => several.len().to_string(),
        };
        format!("{who} at {} ({})", failure.line, failure.conclusion).trim().to_owned()
    });
    let more = failures.len().checked_sub(MAX_GROUPS).filter(|more| *more > 0);
    let more = more.map(|more| format!("{} elsewhere", counted(more as u64, "more group")));
    let groups: Vec<String> = listed.chain(more).collect();
    format!("{} of {} ran out of memory: {}", count(failed), count(all), groups.join(", "))
}

fn describe_peaks(outlier: Option<&RankRow>, median: u64, are_peaks: bool, names: RowNames) -> String {
    // Without a history, the memory of the snapshot itself is compared.
    if median == 0 {
        return "most hold no memory at their peak".to_owned();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_runs_of_ranks_are_listed() {
        for (numbers, text) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0 and 1"),
            (&[0, 1, 2, 3, 7], "ranks 0 to 3 and 7"),
            (&[0, 2, 3, 9], "ranks 0, 2 and 3 and 9"),
            (&[0, 2, 4, 6], "4 ranks"),
        ] {
            assert_eq!(list_of_ranks(numbers.iter().copied().collect()), text);
        }
    }

    #[test]
    fn devices_of_one_rank_are_counted() {
        let rows = [(0, 0), (0, 1), (1, 0), (2, 0)];
        let ranks = Ranks {
            rows: rows.map(|(rank, device)| RankRow { device, ..RankRow::of_rank(rank) }).to_vec(),
            failures: Vec::new(),
            groups: Vec::new(),
            difference: None,
            attempts: None,
            other_jobs: Vec::new(),
            earlier_dumps: 0,
            median_peak_allocated_bytes: 0,
            outlier: None,
            summary: String::new(),
            failed: String::new(),
            peaks: String::new(),
        };
        let labels = [&[0, 1][..], &[0, 2], &[1, 2, 3], &[0, 1, 2, 3]].map(|rows| ranks.labels(rows));
        assert_eq!(labels, ["2 devices", "ranks 0 and 1", "ranks 0 to 2", "4 devices"]);
        assert_eq!(ranks.holders(&[0, 1]), "rank 0");
    }

    #[test]
    fn groups_of_failures_are_counted_unless_there_is_one() {
        let rows: Vec<RankRow> = (0..4).map(RankRow::of_rank).collect();
        let groups = [(vec![0, 2], "a.py:1"), (vec![3], "b.py:2")].map(|(rows, line)| FailureGroup {
            verdict: Verdict::Capacity,
            conclusion: Verdict::Capacity,
            line: line.to_owned(),
            rows,
        });
        for (failures, text) in [
            (&groups[..1], "2 of 4 ran out of memory: at a.py:1 (capacity)"),
            (&groups, "3 of 4 ran out of memory: 2 at a.py:1 (capacity), rank 3 at b.py:2 (capacity)"),
            (&[], "none ran out of memory"),
        ] {
            assert_eq!(describe_failures(failures, &rows, 4, RowNames::new(&rows)), text);
        }
    }
}
