//! Timelines of all snapshots of a job: when each device was at its peak.

use std::cmp::Reverse;

use serde::Serialize;

use crate::analysis::Unreadable;
use crate::study::figures::Figure;
use crate::study::timeline::{DeviceTimeline, Series, TimelineReport};

/// The JSON of `oomscope timeline` for several snapshots.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct FleetTimelineReport {
    /// Number of snapshots with an entry in the selected part of their trace.
    pub snapshots: u64,
    /// One row per device: those with failures first, then those with the highest peak of reserved memory.
    pub rows: Vec<FleetTimelineRow>,
    /// The timeline of the snapshot in the first row.
    pub worst: Option<TimelineReport>,
    /// Snapshots without an answer; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// The peaks of one device of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FleetTimelineRow {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// Device index.
    pub device: u64,
    /// Number of selected entries.
    pub events: u64,
    /// Microseconds from the first to the last selected entry; null before PyTorch 2.2.
    pub duration_us: Option<u64>,
    /// Number of failed requests.
    pub oom_count: u64,
    /// Number of times the allocator released cached memory to serve a request.
    pub reclaim_count: u64,
    /// Peak of allocated memory.
    pub allocated: MemoryPeak,
    /// Peak of reserved memory.
    pub reserved: MemoryPeak,
    /// Peak of free memory that `empty_cache()` would not have released.
    pub stranded: MemoryPeak,
}

/// The highest value of a figure, and when it was reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPeak {
    /// The highest value, in bytes.
    pub bytes: u64,
    /// Index of the entry that first reached it; null before the first selected entry.
    pub event: Option<u64>,
    /// Microseconds from the first selected entry to that one; null before PyTorch 2.2.
    pub after_us: Option<u64>,
}

/// Collects the timelines of the snapshots of a job.
#[derive(Debug, Default)]
pub struct FleetTimeline {
    snapshots: u64,
    rows: Vec<FleetTimelineRow>,
    worst: Option<(Order, TimelineReport)>,
    unreadable: Vec<Unreadable>,
}

/// Failed requests and peak of reserved bytes.
type Order = (u64, u64);

impl FleetTimeline {
    /// Adds a snapshot.
    pub fn add(&mut self, report: TimelineReport) {
        self.snapshots += 1;
        let rows: Vec<FleetTimelineRow> =
            report.devices.iter().map(|device| FleetTimelineRow::new(&report.path, device)).collect();
        let highest = rows.iter().map(FleetTimelineRow::order).max().unwrap_or_default();
        if self.worst.as_ref().is_none_or(|(worst, _)| *worst < highest) {
            self.worst = Some((highest, report));
        }
        self.rows.extend(rows);
    }

    /// True if no snapshot was added.
    pub fn is_empty(&self) -> bool {
        self.snapshots == 0
    }

    /// Adds a file without an answer.
    pub fn add_unreadable(&mut self, file: Unreadable) {
        self.unreadable.push(file);
    }

    /// The report on all of them.
    pub fn finish(mut self) -> FleetTimelineReport {
        // Rows of equal rank keep the order of the files.
        self.rows.sort_by_key(|row| Reverse(row.order()));
        let worst = self.worst.map(|(_, report)| report);
        FleetTimelineReport { snapshots: self.snapshots, rows: self.rows, worst, unreadable: self.unreadable }
    }
}

impl FleetTimelineRow {
    fn new(path: &str, device: &DeviceTimeline) -> Self {
        let peak = |figure| device.series.size(figure).map_or_else(MemoryPeak::default, |it| peak(it, device.start_us));
        Self {
            path: path.to_owned(),
            device: device.device,
            events: device.events,
            duration_us: device.duration_us,
            oom_count: device.marks.oom.count,
            reclaim_count: device.marks.reclaim.count,
            allocated: peak(Figure::Allocated),
            reserved: peak(Figure::Reserved),
            stranded: peak(Figure::Stranded),
        }
    }

    fn order(&self) -> Order {
        (self.oom_count, self.reserved.bytes)
    }
}

fn peak(series: &Series<u64>, start_us: Option<u64>) -> MemoryPeak {
    let after_us = series.highest_time_us.zip(start_us).map(|(time, start)| time.saturating_sub(start));
    MemoryPeak { bytes: series.highest, event: series.highest_event, after_us }
}
