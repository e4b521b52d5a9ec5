//! The JSON of `oomscope timeline`.

use serde::Serialize;

use super::marks::TimelineMarks;
use super::series::{Buckets, SeriesSet};
use crate::base::warning::Warning;
use crate::study::Activity;

/// The JSON of `oomscope timeline`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct TimelineReport {
    /// The path of the snapshot, as given.
    pub path: String,
    /// The PyTorch releases that may have recorded it, such as `2.10-2.11` or `2.14+`.
    pub torch_version: String,
    /// Warnings about the snapshot.
    pub warnings: Vec<Warning>,
    /// Every device with an entry in the selected part of its trace.
    pub devices: Vec<DeviceTimeline>,
}

/// The memory of one device over time.
#[derive(Debug, Serialize)]
pub struct DeviceTimeline {
    /// Device index.
    pub device: u64,
    /// Index of the first selected entry.
    pub first_event: u64,
    /// Number of selected entries.
    pub events: u64,
    /// Number of entries in the whole trace.
    pub trace_events: u64,
    /// Time of the first selected entry in microseconds since the epoch; null before PyTorch 2.2.
    pub start_us: Option<u64>,
    /// Microseconds from the first to the last selected entry; null before PyTorch 2.2.
    pub duration_us: Option<u64>,
    /// The entries of each bucket.
    pub buckets: Buckets,
    /// The minimum and maximum of each figure in each bucket.
    pub series: SeriesSet,
    /// Failed requests, reclaims, emptied caches and snapshots.
    pub marks: TimelineMarks,
    /// Steps and phases, for a chart.
    #[serde(skip)]
    pub activity: Activity,
}
