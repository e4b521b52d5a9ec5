//! Compares the ranks of two directories.

use std::cmp::Reverse;

use serde::Serialize;

use super::device::DeviceDiff;
use crate::analysis::Unreadable;
use crate::study::figures::Figure;

/// The changes of one device of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankChange {
    /// The rank: its path in the directory, without extensions for compression.
    pub name: String,
    /// Device number.
    pub device: u64,
    /// Allocated bytes at the compared position before.
    pub before_allocated_bytes: u64,
    /// Allocated bytes at the compared position after.
    pub after_allocated_bytes: u64,
    /// Allocated bytes after minus before.
    pub delta_allocated_bytes: i64,
    /// Peak of reserved bytes before.
    pub before_peak_reserved_bytes: u64,
    /// Peak of reserved bytes after.
    pub after_peak_reserved_bytes: u64,
    /// Peak of reserved bytes after minus before.
    pub delta_peak_reserved_bytes: i64,
    /// Number of failed requests before.
    pub before_ooms: u64,
    /// Number of failed requests after.
    pub after_ooms: u64,
}

/// The ranks of two directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RanksDiff {
    /// Worst first: ranks that fail only after, then by growth.
    pub rows: Vec<RankChange>,
    /// Ranks that only the directory before has.
    pub only_before: Vec<String>,
    /// Ranks that only the directory after has.
    pub only_after: Vec<String>,
    /// Files of common ranks that could not be read; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl RankChange {
    fn new(name: &str, device: &DeviceDiff) -> Self {
        // A snapshot without the device holds nothing there.
        let (before, after) = (device.before.unwrap_or_default(), device.after.unwrap_or_default());
        let sides = |figure| [before.number(figure), after.number(figure)];
        let [before_allocated_bytes, after_allocated_bytes] = sides(Figure::Allocated);
        let [before_peak_reserved_bytes, after_peak_reserved_bytes] = sides(Figure::PeakReserved);
        let [before_ooms, after_ooms] = sides(Figure::Ooms);
        Self {
            name: name.to_owned(),
            device: device.device,
            before_allocated_bytes,
            after_allocated_bytes,
            delta_allocated_bytes: device.delta.change(Figure::Allocated),
            before_peak_reserved_bytes,
            after_peak_reserved_bytes,
            delta_peak_reserved_bytes: device.delta.change(Figure::PeakReserved),
            before_ooms,
            after_ooms,
        }
    }
}

impl RanksDiff {
    /// A row for every device of every compared rank, and the names of the other ranks.
    pub fn new<'a>(
        compared: impl Iterator<Item = (&'a str, &'a [DeviceDiff])>,
        only_before: Vec<String>,
        only_after: Vec<String>,
        unreadable: Vec<Unreadable>,
    ) -> Self {
        let of_rank = |(name, devices): (&'a str, &'a [DeviceDiff])| {
            devices.iter().map(move |device| RankChange::new(name, device))
        };
        let mut rows: Vec<RankChange> = compared.flat_map(of_rank).collect();
        rows.sort_by_key(|row| {
            let fails_now = row.after_ooms > 0 && row.before_ooms == 0;
            (Reverse((fails_now, row.delta_allocated_bytes)), row.name.clone(), row.device)
        });
        Self { rows, only_before, only_after, unreadable }
    }
}
