//! A device's memory over time: allocated, reserved, free by kind, fragmentation, what happened when.

mod answer;
mod marks;
mod ranges;
mod series;
mod summary;

pub use self::answer::{DeviceTimeline, TimelineReport};
pub use self::marks::{Mark, MarkKind, Marks};
pub(crate) use self::ranges::ranges;
pub use self::ranges::{NamedRange, NamedRanges, RangeSpan};
use self::series::SeriesBook;
pub use self::series::{Buckets, Series, SeriesSet};
use crate::base::warning::Warnings;
use crate::replay::ops::device_frees;
use crate::replay::literal::{Tracking, is_completed_at_once};
use crate::snapshot::{BlockState, Snapshot};
use crate::study::warn_about_replay;
use crate::study::{Activity, DeviceStudy, Scope, Study, Window, sample_index};

/// Which part of a snapshot to follow, and how closely.
#[derive(Debug, Clone, Copy)]
pub struct TimelineOptions {
    /// Only this device.
    pub device: Option<u64>,
    /// Which part of each device's trace.
    pub window: Window,
    /// The minor release of PyTorch 2 that recorded it; found out as far as the file tells if not given.
    pub minor: Option<u32>,
    /// How many buckets at most.
    pub buckets: usize,
}

/// Follows the memory of `snapshot`, read from `path`.
pub fn timeline(snapshot: &Snapshot, path: &str, options: TimelineOptions) -> TimelineReport {
    let TimelineOptions { device, window, minor, buckets } = options;
    let study = Study::new(snapshot, Scope { device, window, minor, ..Scope::default() });
    let mut warnings = snapshot.warnings.clone();
    let looked_at = study.devices().filter(|device| !device.window().is_empty());
    let follow = |device| follow(device, buckets, &mut warnings);
    let devices: Vec<DeviceTimeline> = looked_at.filter_map(follow).collect();
    let warnings = warnings.to_vec();
    TimelineReport {
        schema: "oomscope/timeline/1",
        summary: summary::of_devices(&devices, &warnings, path),
        path: path.to_owned(),
        torch_version: minor.map_or_else(|| snapshot.torch_version(), |minor| format!("2.{minor}")),
        warnings,
        devices,
    }
}

fn follow(
    study: DeviceStudy<'_, '_>,
    buckets: usize,
    warnings: &mut Warnings,
) -> Option<DeviceTimeline> {
    let (device, window) = (study.device(), &study.window());
    let fresh = || (SeriesBook::new(window.len(), buckets), Marks::new());
    let (mut book, mut marks) = fresh();
    let over_time = study.replay(Tracking::FreeKinds, |step| {
        if step.entry.is_none() {
            (book, marks) = fresh();
        }
        let entry = step.entry.map(|(index, _)| index);
        let Some(place) = sample_index(window, entry) else { return };
        // In the midst of one call nobody sees the block wait.
        let being_freed = step.entry.map_or(0, |(index, event)| {
            if !is_completed_at_once(device, index) {
                return 0;
            }
            match step.tiling.block_at(event.addr) {
                Some((size, BlockState::ActivePendingFree)) => size,
                _ => 0,
            }
        });
        book.add(place, step.tiling, being_freed);
        if let Some((index, event)) = &step.entry
            && window.contains(index)
        {
            marks.entry(*index, event, book.bucket_of(place));
        }
    });
    let outcome = over_time?.outcome;
    let time = |index: usize| device.time_us(index);
    for given in device_frees(device, outcome.initial_totals.reserved) {
        if window.contains(&given.entry_index) {
            let bucket = book.bucket_of(given.entry_index - window.start);
            marks.given_back(given, time(given.entry_index), bucket);
        }
    }
    warn_about_replay(device, outcome, warnings);
    let (buckets, series) = book.close(window, time);
    let ends = time(window.start).zip(time(window.end - 1));
    Some(DeviceTimeline {
        device: device.id(),
        first_event: window.start as u64,
        events: window.len() as u64,
        trace_events: device.len() as u64,
        start_us: time(window.start),
        duration_us: ends.map(|(start, end)| end.saturating_sub(start)),
        marks: marks.close(buckets.first_event.len()),
        ranges: ranges(device, window, |entry| book.bucket_of(entry - window.start)),
        buckets,
        series,
        course: Activity::from_trace(study),
    })
}
