//! Two directories of ranks side by side.

use std::cmp::Reverse;

use serde::Serialize;

use super::figures::change;
use super::limit::Growth;
use super::report::At;
use crate::analysis::{DeviceReport, SnapshotReport};

/// One device of one rank on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankChange {
    /// The rank: the path in its directory, without endings of compression.
    pub name: String,
    /// Device number.
    pub device: u64,
    /// Allocated at the moment compared, before.
    pub before_allocated_bytes: u64,
    /// Allocated at the moment compared, after.
    pub after_allocated_bytes: u64,
    /// After less before.
    pub delta_allocated_bytes: i64,
    /// The most that was reserved, before.
    pub before_peak_reserved_bytes: u64,
    /// The most that was reserved, after.
    pub after_peak_reserved_bytes: u64,
    /// After less before.
    pub delta_peak_reserved_bytes: i64,
    /// Failed requests before.
    pub before_ooms: u64,
    /// Failed requests after.
    pub after_ooms: u64,
}

/// The ranks of two directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RanksDiff {
    /// The worst first: those that fail now and did not before, then by growth.
    pub rows: Vec<RankChange>,
    /// Ranks that only the directory before has.
    pub only_before: Vec<String>,
    /// Ranks that only the directory after has.
    pub only_after: Vec<String>,
}

/// Compares the ranks that both sides have, a row a device; both lists are sorted by name.
pub fn compare_ranks(
    before: &[(String, SnapshotReport)],
    after: &[(String, SnapshotReport)],
    at: At,
) -> RanksDiff {
    let missing = |own: &[(String, SnapshotReport)], other: &[(String, SnapshotReport)]| {
        let names = own.iter().map(|(name, _)| name);
        names.filter(|name| report_of(other, name).is_none()).cloned().collect()
    };
    let mut rows = Vec::new();
    for (name, old) in before {
        let Some(new) = report_of(after, name) else { continue };
        let mut devices: Vec<u64> =
            [old, new].iter().flat_map(|report| &report.devices).map(|d| d.device).collect();
        devices.sort_unstable();
        devices.dedup();
        let of = |report: &SnapshotReport, device| {
            let found = report.devices.iter().find(|one| one.device == device);
            found.map(|one| figures(one, at)).unwrap_or_default()
        };
        rows.extend(devices.into_iter().map(|device| {
            let (b, a) = (of(old, device), of(new, device));
            RankChange {
                name: name.clone(),
                device,
                before_allocated_bytes: b.0,
                after_allocated_bytes: a.0,
                delta_allocated_bytes: change(b.0, a.0),
                before_peak_reserved_bytes: b.1,
                after_peak_reserved_bytes: a.1,
                delta_peak_reserved_bytes: change(b.1, a.1),
                before_ooms: b.2,
                after_ooms: a.2,
            }
        }));
    }
    rows.sort_by_key(|row| {
        let fails_now = row.after_ooms > 0 && row.before_ooms == 0;
        (Reverse((fails_now, row.delta_allocated_bytes)), row.name.clone(), row.device)
    });
    RanksDiff { rows, only_before: missing(before, after), only_after: missing(after, before) }
}

fn report_of<'a>(
    reports: &'a [(String, SnapshotReport)],
    name: &str,
) -> Option<&'a SnapshotReport> {
    let row = reports.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
    reports.get(row).map(|(_, report)| report)
}

/// Allocated at the moment, peak reserved, failed requests.
fn figures(device: &DeviceReport, at: At) -> (u64, u64, u64) {
    let allocated = match at {
        At::Peak => device.peak.allocated_bytes,
        At::Snapshot => device.memory.allocated_bytes,
    };
    (allocated, device.peak.reserved_bytes, device.oom_count)
}

impl RanksDiff {
    /// What every row allocates at the moment compared.
    pub fn growths(&self) -> impl Iterator<Item = Growth<'_>> {
        self.rows.iter().map(|row| Growth {
            name: Some(&row.name),
            device: row.device,
            before_bytes: row.before_allocated_bytes,
            after_bytes: row.after_allocated_bytes,
        })
    }
}
