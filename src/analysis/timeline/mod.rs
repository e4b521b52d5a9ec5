//! The report of `oomscope timeline`: a device's memory over time, with failures and reclaims; and the ranges that
//! the program named, for the report page and Perfetto.
//!
//! In: a snapshot and a [`Scope`]. Out: a [`TimelineReport`] with bucketed series. Knows nothing of drawing.

mod marks;
mod ranges;
mod series;

use serde::Serialize;

pub use self::marks::{MarkSeries, TimelineMark, TimelineMarks};
pub(crate) use self::ranges::{annotation_spans, metadata_spans, named_spans};
use self::series::SeriesRecorder;
pub use self::series::{Buckets, Series, SeriesSet};
use crate::base::warning::{Warning, Warnings};
use crate::replay::literal::{Tracking, is_completed_at_once};
use crate::replay::ops::device_frees;
use crate::snapshot::{BlockState, Snapshot};
use crate::study::{Activity, DeviceStudy, Scope, Study, sample_index, warn_about_replay};

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

/// Reports the memory of `snapshot` over time, in the devices and the part of the trace that `scope` selects, in
/// `buckets` at most. `path` is its file name, for the report.
pub fn timeline(snapshot: &Snapshot, path: &str, scope: Scope, buckets: usize) -> TimelineReport {
    let study = Study::new(snapshot, scope);
    let mut warnings = snapshot.warnings.clone();
    let selected = study.devices().filter(|device| !device.window().is_empty());
    let devices: Vec<DeviceTimeline> =
        selected.filter_map(|device| follow_device(device, buckets, &mut warnings)).collect();
    let (path, warnings) = (path.to_owned(), warnings.to_vec());
    TimelineReport { path, torch_version: snapshot.torch_version(), warnings, devices }
}

fn follow_device(study: DeviceStudy<'_, '_>, buckets: usize, warnings: &mut Warnings) -> Option<DeviceTimeline> {
    let (device, window) = (study.device(), &study.window());
    let (mut recorder, mut marks) = (SeriesRecorder::new(window.len(), buckets), TimelineMarks::default());
    let history = study.replay(Tracking::FreeKinds, |step| {
        if step.at.is_none() {
            (recorder, marks) = (SeriesRecorder::new(window.len(), buckets), TimelineMarks::default());
        }
        let Some(sample) = sample_index(window, step.at.map(|(index, _)| index)) else { return }; // outside the window
        // A block that is freed and completed within one call never counts as pending.
        let freed = step.at.filter(|(index, _)| is_completed_at_once(device, *index));
        let being_freed = match freed.and_then(|(index, _)| step.tiling.block_at(device.entry(index).addr)) {
            Some((size, BlockState::ActivePendingFree)) => size,
            _ => 0,
        };
        recorder.add(sample, step.tiling, being_freed);
        if let Some((index, _)) = step.at
            && window.contains(&index)
        {
            marks.add_entry(index, &device.entry(index), recorder.bucket_of(sample));
        }
    });
    let outcome = history?.outcome;
    for free in device_frees(device, outcome.initial_totals.reserved) {
        if window.contains(&free.entry_index) {
            let bucket = recorder.bucket_of(free.entry_index - window.start);
            marks.add_device_free(free, device.time_us(free.entry_index), bucket);
        }
    }
    warn_about_replay(device, outcome, warnings);
    let (buckets, series) = recorder.finish(window, |index| device.time_us(index));
    let ends = device.time_us(window.start).zip(device.time_us(window.end - 1));
    Some(DeviceTimeline {
        device: device.id(),
        first_event: window.start as u64,
        events: window.len() as u64,
        trace_events: device.len() as u64,
        start_us: device.time_us(window.start),
        duration_us: ends.map(|(start, end)| end.saturating_sub(start)),
        marks: marks.finish(buckets.first_event.len()),
        buckets,
        series,
        activity: Activity::from_trace(study),
    })
}
