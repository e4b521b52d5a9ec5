//! Several snapshots side by side: the ranks of one job.

use serde::Serialize;

use super::snapshot::SnapshotReport;
use crate::units::{percent, ratio, size};

/// Peaks within this of the median are alike.
const ALIKE: f64 = 0.1;

/// One device of one snapshot, in a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rank {
    /// The snapshot's path, as given.
    pub path: String,
    /// Device number.
    pub device: u64,
    /// Failed requests.
    pub oom_count: u64,
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

/// All of them, and the one that is unlike the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranks {
    /// The worst first: those that ran out of memory, then by peak of reserved memory.
    pub rows: Vec<Rank>,
    /// The median of the peaks of allocated memory.
    pub median_peak_allocated_bytes: u64,
    /// The row whose peak of allocated memory is farthest from the median, if by more than 10%.
    pub outlier: Option<usize>,
    /// The finding in a sentence.
    pub summary: String,
}

/// Puts several snapshots side by side; `None` for fewer than two rows.
pub fn compare_ranks(snapshots: &[SnapshotReport]) -> Option<Ranks> {
    let mut rows: Vec<Rank> = snapshots
        .iter()
        .flat_map(|snapshot| snapshot.devices.iter().map(move |device| (snapshot, device)))
        .map(|(snapshot, device)| Rank {
            path: snapshot.path.clone(),
            device: device.device,
            oom_count: device.oom_count,
            peak_allocated_bytes: device.peak.allocated_bytes,
            peak_reserved_bytes: device.peak.reserved_bytes,
            reserved_bytes: device.memory.reserved_bytes,
            allocated_bytes: device.memory.allocated_bytes,
            gap_ratio: device.memory.fragmentation.gap_ratio,
        })
        .collect();
    if snapshots.len() < 2 || rows.len() < 2 {
        return None;
    }
    rows.sort_by(|a, b| {
        let key = |r: &Rank| (r.oom_count > 0, r.peak_reserved_bytes, r.peak_allocated_bytes);
        key(b).cmp(&key(a)).then_with(|| (&a.path, a.device).cmp(&(&b.path, b.device)))
    });
    let mut peaks: Vec<u64> = rows.iter().map(|r| r.peak_allocated_bytes).collect();
    peaks.sort_unstable();
    let median = peaks.get((peaks.len() - 1) / 2).copied().unwrap_or(0);
    let away = |rank: &Rank| rank.peak_allocated_bytes.abs_diff(median);
    let farthest = (0..rows.len()).rev().max_by_key(|i| rows.get(*i).map(away));
    let outlier = farthest.filter(|i| rows.get(*i).is_some_and(|r| ratio(away(r), median) > ALIKE));
    let failed = rows.iter().filter(|r| r.oom_count > 0).count();
    let failed = match failed {
        0 => "none ran out of memory".to_owned(),
        n => format!("{n} of {} ran out of memory", rows.len()),
    };
    let peaks = match outlier.and_then(|i| rows.get(i)) {
        Some(rank) => {
            let more = rank.peak_allocated_bytes > median;
            format!(
                "{} (device {}) stands out: it peaks at {} allocated, {} {} than the median of {}",
                rank.path,
                rank.device,
                size(rank.peak_allocated_bytes),
                percent(ratio(away(rank), median)),
                if more { "more" } else { "less" },
                size(median)
            )
        }
        None => format!(
            "all peaks of allocated memory lie within {} of the median of {}",
            percent(ALIKE),
            size(median)
        ),
    };
    let summary = format!("{failed}; {peaks}");
    Some(Ranks { rows, median_peak_allocated_bytes: median, outlier, summary })
}
