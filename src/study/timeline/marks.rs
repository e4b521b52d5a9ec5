//! What happened in a trace: failed requests, memory given back to the device, snapshots.

use std::cmp::Reverse;

use serde::Serialize;

use crate::replay::ops::DeviceFree;
use crate::snapshot::{Action, TraceEntry};

/// Marks of one kind that are listed one by one.
const LISTED: usize = 100;

/// Everything marked, by kind.
#[derive(Debug, Serialize)]
pub struct Marks {
    /// Requests that failed; bytes of the request.
    pub oom: MarkKind,
    /// Requests, served or failed, for which cached memory was first given back to the device; bytes
    /// given back. Retries, and under their settings garbage collection and the like.
    pub reclaim: MarkKind,
    /// Memory given back because the program said so: `empty_cache()`, a private pool dropped; bytes
    /// given back.
    pub empty_cache: MarkKind,
    /// Snapshots taken; no bytes.
    pub snapshot: MarkKind,
}

/// Marks of one kind.
#[derive(Debug, Default, Serialize)]
pub struct MarkKind {
    /// How many.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// How many in each bucket.
    pub in_bucket: Vec<u64>,
    /// Those of most bytes, at most 100, in the order of the trace.
    pub largest: Vec<Mark>,
}

/// One mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Index in the device's trace.
    pub event: u64,
    /// When, in microseconds since the epoch; `None` before 2.2.
    pub time_us: Option<u64>,
    /// Bytes.
    pub bytes: u64,
}

impl MarkKind {
    fn add(&mut self, mark: Mark, bucket: usize) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(mark.bytes);
        if self.in_bucket.len() <= bucket {
            self.in_bucket.resize(bucket + 1, 0);
        }
        if let Some(count) = self.in_bucket.get_mut(bucket) {
            *count += 1;
        }
        self.largest.push(mark);
        if self.largest.len() >= 2 * LISTED {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        self.largest.sort_by_key(|mark| (Reverse(mark.bytes), mark.event));
        self.largest.truncate(LISTED);
    }

    /// Every bucket has a count, every list its order.
    fn close(&mut self, buckets: usize) {
        self.in_bucket.resize(buckets, 0);
        self.shorten();
        self.largest.sort_by_key(|mark| mark.event);
    }
}

impl Marks {
    /// None yet.
    pub(super) fn new() -> Self {
        let [oom, reclaim, empty_cache, snapshot] = std::array::from_fn(|_| MarkKind::default());
        Self { oom, reclaim, empty_cache, snapshot }
    }

    /// Looks at entry `index`.
    #[inline]
    pub(super) fn entry(&mut self, index: usize, event: &TraceEntry, bucket: usize) {
        let (kind, bytes) = match event.action {
            Action::Oom => (&mut self.oom, event.size),
            Action::Snapshot => (&mut self.snapshot, 0),
            _ => return,
        };
        let time_us = Some(event.time_us).filter(|time| *time != 0);
        kind.add(Mark { event: index as u64, time_us, bytes }, bucket);
    }

    /// Memory went back to the device.
    pub(super) fn given_back(&mut self, given: DeviceFree, time_us: Option<u64>, bucket: usize) {
        let kind = if given.is_for_request { &mut self.reclaim } else { &mut self.empty_cache };
        kind.add(Mark { event: given.entry_index as u64, time_us, bytes: given.bytes }, bucket);
    }

    /// All marks of a series of so many `buckets`.
    pub(super) fn close(mut self, buckets: usize) -> Self {
        for kind in [&mut self.oom, &mut self.reclaim, &mut self.empty_cache, &mut self.snapshot] {
            kind.close(buckets);
        }
        self
    }
}
