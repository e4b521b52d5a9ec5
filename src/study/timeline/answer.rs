//! The answer: what stands in its JSON.

use serde::Serialize;

use super::marks::Marks;
use super::ranges::NamedRanges;
use super::series::{Buckets, SeriesSet};
use crate::base::summary::Summary;
use crate::base::warning::Warning;
use crate::study::Activity;

/// The JSON of `oomscope timeline`.
#[derive(Debug, Serialize)]
pub struct TimelineReport {
    /// `oomscope/timeline/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
    /// As given.
    pub path: String,
    /// The releases that write these keys, such as `2.10-2.11` or `2.14+`.
    pub torch_version: String,
    /// What is odd about the file.
    pub warnings: Vec<Warning>,
    /// Every device with an entry in the part of its trace that is looked at.
    pub devices: Vec<DeviceTimeline>,
}

/// One device over time.
#[derive(Debug, Serialize)]
pub struct DeviceTimeline {
    /// Device number.
    pub device: u64,
    /// Index of the first entry that is looked at.
    pub first_event: u64,
    /// Entries that are looked at.
    pub events: u64,
    /// Entries in the whole trace.
    pub trace_events: u64,
    /// When the first of them was recorded, in microseconds since the epoch; `None` before 2.2.
    pub start_us: Option<u64>,
    /// Microseconds from the first to the last of them.
    pub duration_us: Option<u64>,
    /// Where each bucket lies.
    pub buckets: Buckets,
    /// The values in each bucket.
    pub series: SeriesSet,
    /// What happened.
    pub marks: Marks,
    /// What the program said that it was doing.
    pub ranges: NamedRanges,
    /// What it was doing as its stacks tell, for a chart.
    #[serde(skip)]
    pub course: Activity,
}
