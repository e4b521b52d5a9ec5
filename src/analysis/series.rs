//! Series of a device's memory over a part of its trace, in buckets.

use std::ops::Range;

use serde::Serialize;

use super::window::entry_of;
use crate::replay::{Sampler, Tiling};
use crate::units::ratio;

/// Runs of entries that follow each other without gaps; the first also has the state before its entries.
#[derive(Debug, Serialize)]
pub struct Buckets {
    /// Index of each bucket's first entry.
    pub first_event: Vec<u64>,
    /// Index of each bucket's last entry.
    pub last_event: Vec<u64>,
    /// When its first entry was recorded, in microseconds since the epoch; `None` before 2.2.
    pub time_us: Vec<Option<u64>>,
}

/// One series.
#[derive(Debug, Serialize)]
pub struct Series<T> {
    /// The smallest value in each bucket.
    pub min: Vec<T>,
    /// The largest value in each bucket.
    pub max: Vec<T>,
    /// The largest value of all.
    pub highest: T,
    /// The entry that reached it first; `None` for the state in which this part of the trace begins.
    pub highest_event: Option<u64>,
    /// When that was, in microseconds since the epoch.
    pub highest_time_us: Option<u64>,
    /// The value after the last entry.
    pub last: T,
}

/// All series: sizes in bytes, and ratios of them.
#[derive(Debug, Serialize)]
pub struct SeriesSet {
    /// Held from the device.
    pub reserved_bytes: Series<u64>,
    /// In blocks that the program holds.
    pub allocated_bytes: Series<u64>,
    /// Allocated, or freed and waiting for another stream.
    pub active_bytes: Series<u64>,
    /// Freed, waiting for another stream.
    pub pending_bytes: Series<u64>,
    /// Free, and `empty_cache()` would give it back to the device.
    pub releasable_bytes: Series<u64>,
    /// Free, and it would not.
    pub stranded_bytes: Series<u64>,
    /// The part of the stranded bytes that is in private pools.
    pub private_free_bytes: Series<u64>,
    /// Held from the device by private pools.
    pub private_reserved_bytes: Series<u64>,
    /// The largest free block of any pool and stream.
    pub largest_free_block_bytes: Series<u64>,
    /// 1 - allocated / reserved.
    pub gap_ratio: Series<f64>,
    /// Stranded of reserved.
    pub stranded_ratio: Series<f64>,
    /// 1 - largest free block / all free bytes; 0 when nothing is free.
    pub external_ratio: Series<f64>,
}

/// Gathers them, moment by moment.
pub(super) struct SeriesBook {
    bytes: Sampler<9>,
    ratios: Sampler<3, f64>,
}

impl SeriesBook {
    /// For `len` entries, in at most `limit` buckets.
    pub(super) fn new(len: usize, limit: usize) -> Self {
        Self { bytes: Sampler::new(len, limit), ratios: Sampler::new(len, limit) }
    }

    /// The bucket of entry `place`.
    pub(super) fn bucket_of(&self, place: usize) -> usize {
        self.bytes.bucket_of(place)
    }

    /// Adds the moment after entry `place`; a pending block of `being_freed` bytes counts as allocated.
    #[inline]
    pub(super) fn add(&mut self, place: usize, tiling: &Tiling, being_freed: u64) {
        let totals = tiling.totals();
        let allocated = totals.allocated + being_freed;
        let kinds = tiling.free_kinds().unwrap_or_default();
        let bytes = [
            totals.reserved,
            allocated,
            totals.active,
            totals.active - allocated,
            kinds.releasable,
            kinds.stranded,
            kinds.private_free,
            kinds.private_reserved,
            kinds.largest,
        ];
        let ratios = [
            left(allocated, totals.reserved),
            ratio(kinds.stranded, totals.reserved),
            left(kinds.largest, totals.reserved - totals.active),
        ];
        self.bytes.add(place, bytes);
        self.ratios.add(place, ratios);
    }

    /// The series over `window`; `time` tells when an entry was recorded.
    pub(super) fn close(
        &self,
        window: &Range<usize>,
        time: impl Fn(usize) -> Option<u64>,
    ) -> (Buckets, SeriesSet) {
        let first: Vec<usize> =
            self.bytes.buckets().iter().map(|bucket| window.start + bucket.first).collect();
        let next = first.iter().skip(1).copied().chain([window.end]);
        let buckets = Buckets {
            first_event: first.iter().map(|entry| *entry as u64).collect(),
            last_event: next.map(|next| next.saturating_sub(1) as u64).collect(),
            time_us: first.iter().map(|entry| time(*entry)).collect(),
        };
        let [
            reserved,
            allocated,
            active,
            pending,
            releasable,
            stranded,
            private_free,
            private,
            largest,
        ] = columns(&self.bytes, window, &time);
        let [gap, stranded_part, external] = columns(&self.ratios, window, &time);
        let series = SeriesSet {
            reserved_bytes: reserved,
            allocated_bytes: allocated,
            active_bytes: active,
            pending_bytes: pending,
            releasable_bytes: releasable,
            stranded_bytes: stranded,
            private_free_bytes: private_free,
            private_reserved_bytes: private,
            largest_free_block_bytes: largest,
            gap_ratio: gap,
            stranded_ratio: stranded_part,
            external_ratio: external,
        };
        (buckets, series)
    }
}

/// What a sampler gathered, a series at a time.
fn columns<const N: usize, T: Copy + Default + PartialOrd>(
    sampler: &Sampler<N, T>,
    window: &Range<usize>,
    time: impl Fn(usize) -> Option<u64>,
) -> [Series<T>; N] {
    let (highest, last) = (sampler.highest(), sampler.last());
    std::array::from_fn(|i| {
        let entry = entry_of(window, highest[i].sample);
        Series {
            min: sampler.buckets().iter().map(|bucket| bucket.min[i]).collect(),
            max: sampler.buckets().iter().map(|bucket| bucket.max[i]).collect(),
            highest: highest[i].value,
            highest_event: entry.map(|entry| entry as u64),
            highest_time_us: entry.and_then(&time),
            last: last[i],
        }
    })
}

/// 1 - part / whole, 0 when there is no whole.
fn left(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 1.0 - ratio(part, whole) }
}
