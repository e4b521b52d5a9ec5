//! Marks on a timeline: failed requests, memory released to the device, snapshots.

use std::cmp::Reverse;

use serde::Serialize;

use crate::replay::ops::DeviceFree;
use crate::snapshot::{Action, TraceEntry};

/// Maximum number of marks of one kind that are listed individually.
const MAX_LISTED: usize = 100;

/// Marks by kind.
#[derive(Debug, Default, Serialize)]
pub struct TimelineMarks {
    /// Failed requests, with the bytes of each request.
    pub oom: MarkSeries,
    /// Requests, served or failed, for which the allocator first released cached memory to the device, with the
    /// released bytes: retries, garbage collection and the like.
    pub reclaim: MarkSeries,
    /// Memory that the program had released to the device, by `empty_cache()` or by dropping a private pool, with the
    /// released bytes.
    pub empty_cache: MarkSeries,
    /// Snapshots taken; their bytes are 0.
    pub snapshot: MarkSeries,
}

/// Marks of one kind.
#[derive(Debug, Default, Serialize)]
pub struct MarkSeries {
    /// Number of marks.
    pub count: u64,
    /// Total bytes of all marks.
    pub bytes: u64,
    /// Number of marks in each bucket.
    pub in_bucket: Vec<u64>,
    /// The 100 marks with most bytes, in trace order.
    pub largest: Vec<TimelineMark>,
}

/// A mark at an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimelineMark {
    /// Entry index in the device's trace.
    pub event: u64,
    /// Time in microseconds since the epoch; null before PyTorch 2.2.
    pub time_us: Option<u64>,
    /// Bytes requested or released; 0 for a snapshot.
    pub bytes: u64,
}

impl MarkSeries {
    fn add(&mut self, mark: TimelineMark, bucket: usize) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(mark.bytes);
        if self.in_bucket.len() <= bucket {
            self.in_bucket.resize(bucket + 1, 0);
        }
        self.in_bucket[bucket] += 1;
        self.largest.push(mark);
        if self.largest.len() >= 2 * MAX_LISTED {
            self.keep_largest();
        }
    }

    fn keep_largest(&mut self) {
        self.largest.sort_by_key(|mark| (Reverse(mark.bytes), mark.event));
        self.largest.truncate(MAX_LISTED);
    }

    /// Extends the counts to all `buckets` and puts the listed marks in trace order.
    fn finish(&mut self, buckets: usize) {
        self.in_bucket.resize(buckets, 0);
        self.keep_largest();
        self.largest.sort_by_key(|mark| mark.event);
    }
}

impl TimelineMarks {
    #[inline]
    pub(super) fn add_entry(&mut self, index: usize, event: &TraceEntry, bucket: usize) {
        let (kind, bytes) = match event.action {
            Action::Oom => (&mut self.oom, event.size),
            Action::Snapshot => (&mut self.snapshot, 0),
            _ => return,
        };
        let time_us = Some(event.time_us).filter(|time| *time != 0);
        kind.add(TimelineMark { event: index as u64, time_us, bytes }, bucket);
    }

    pub(super) fn add_device_free(&mut self, free: DeviceFree, time_us: Option<u64>, bucket: usize) {
        let kind = if free.is_for_request { &mut self.reclaim } else { &mut self.empty_cache };
        kind.add(TimelineMark { event: free.entry_index as u64, time_us, bytes: free.bytes }, bucket);
    }

    pub(super) fn finish(mut self, buckets: usize) -> Self {
        for kind in [&mut self.oom, &mut self.reclaim, &mut self.empty_cache, &mut self.snapshot] {
            kind.finish(buckets);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_marks_are_listed_in_trace_order() {
        for count in [1, MAX_LISTED - 1, MAX_LISTED, MAX_LISTED + 1, 5 * MAX_LISTED] {
            let events = 0..count as u64;
            let marks = events.map(|event| TimelineMark { event, time_us: None, bytes: event * 7919 % 101 });
            let mut marks: Vec<TimelineMark> = marks.collect();
            let mut series = MarkSeries::default();
            for (index, mark) in marks.iter().enumerate() {
                series.add(*mark, index / 30);
            }
            series.finish(20);
            let in_bucket = (0..20).map(|bucket: usize| count.saturating_sub(bucket * 30).min(30) as u64);
            assert_eq!(series.in_bucket, in_bucket.collect::<Vec<u64>>());
            assert_eq!([series.count, series.bytes], [count as u64, marks.iter().map(|mark| mark.bytes).sum()]);
            marks.sort_by_key(|mark| (Reverse(mark.bytes), mark.event));
            marks.truncate(MAX_LISTED);
            marks.sort_by_key(|mark| mark.event);
            assert_eq!(series.largest, marks);
        }
    }
}
