//! Bucketed series of a device's figures over the selected part of its trace.

use std::ops::Range;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::replay::literal::{Sampler, Tiling};
use crate::study::entry_of_sample;
use crate::study::figures::{Amount, BlockTotals, Figure, MemoryState, SizedCount};

/// Consecutive ranges of entries. The first bucket also covers the state before its first entry.
#[derive(Debug, Serialize)]
pub struct Buckets {
    /// Index of the first entry of each bucket.
    pub first_event: Vec<u64>,
    /// Index of the last entry of each bucket.
    pub last_event: Vec<u64>,
    /// Time of the first entry of each bucket in microseconds since the epoch; null before PyTorch 2.2.
    pub time_us: Vec<Option<u64>>,
}

/// The series of one figure.
#[derive(Debug, Serialize)]
pub struct Series<T> {
    /// Minimum in each bucket.
    pub min: Vec<T>,
    /// Maximum in each bucket.
    pub max: Vec<T>,
    /// Maximum of all buckets.
    pub highest: T,
    /// Index of the entry that first reached `highest`; null for the state before the first selected entry.
    pub highest_event: Option<u64>,
    /// Time of that entry in microseconds since the epoch; null if there is none, or before PyTorch 2.2.
    pub highest_time_us: Option<u64>,
    /// Value after the last selected entry.
    pub last: T,
}

/// A figure that has a series, and its value: computed for every entry, so without the wide amounts of the catalogue.
type Valued<T> = (Figure, fn(&MemoryState) -> T);

/// Figures in bytes that have a series.
const SIZES: [Valued<u64>; 9] = [
    (Figure::Reserved, |state| state.reserved),
    (Figure::Allocated, |state| state.blocks.active_allocated.bytes),
    (Figure::Active, MemoryState::active),
    (Figure::Pending, |state| state.blocks.active_pending_free.bytes),
    (Figure::Releasable, |state| state.releasable),
    (Figure::Stranded, MemoryState::stranded),
    (Figure::PrivateFree, |state| state.private_free),
    (Figure::PrivateReserved, |state| state.private_reserved),
    (Figure::LargestFreeBlock, |state| state.largest_free_block),
];
/// Ratios that have a series.
const RATIOS: [Valued<f64>; 3] = [
    (Figure::GapRatio, MemoryState::gap_ratio),
    (Figure::Fragmentation, MemoryState::stranded_ratio),
    (Figure::ExternalRatio, MemoryState::external_ratio),
];

/// A [`Series`] for each figure. `reserved_bytes`, `allocated_bytes`, `active_bytes`, `releasable_bytes`,
/// `stranded_bytes`, `largest_free_block_bytes`, `gap_ratio`, `fragmentation` (there `stranded_ratio`) and `external_ratio` mean the same as
/// in `analyze`. `pending_bytes` are freed but may be in use on another stream, `private_reserved_bytes` are reserved
/// by private pools, and `private_free_bytes` are the stranded bytes in these.
#[derive(Debug)]
pub struct SeriesSet {
    bytes: [Series<u64>; SIZES.len()],
    ratios: [Series<f64>; RATIOS.len()],
}

impl SeriesSet {
    /// Series of bytes, in a fixed order.
    pub fn sizes(&self) -> impl Iterator<Item = (Figure, &Series<u64>)> {
        SIZES.iter().map(|(figure, _)| *figure).zip(&self.bytes)
    }

    /// Series of ratios, in a fixed order.
    pub fn ratios(&self) -> impl Iterator<Item = (Figure, &Series<f64>)> {
        RATIOS.iter().map(|(figure, _)| *figure).zip(&self.ratios)
    }

    /// The series of a figure in bytes, if it has one.
    pub fn size(&self, figure: Figure) -> Option<&Series<u64>> {
        self.sizes().find(|(key, _)| *key == figure).map(|(_, series)| series)
    }
}

impl Serialize for SeriesSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(SIZES.len() + RATIOS.len()))?;
        for (figure, series) in self.sizes() {
            map.serialize_entry(&figure.json_key(), series)?;
        }
        for (figure, series) in self.ratios() {
            map.serialize_entry(&figure.json_key(), series)?;
        }
        map.end()
    }
}

/// Records all series during a literal replay.
pub(super) struct SeriesRecorder {
    bytes: Sampler<{ SIZES.len() }>,
    ratios: Sampler<{ RATIOS.len() }, f64>,
}

impl SeriesRecorder {
    /// For `len` entries, in at most `max_buckets`.
    pub(super) fn new(len: usize, max_buckets: usize) -> Self {
        Self { bytes: Sampler::new(len, max_buckets), ratios: Sampler::new(len, max_buckets) }
    }

    pub(super) fn bucket_of(&self, sample: usize) -> usize {
        self.bytes.bucket_index(sample)
    }

    /// Adds a sample. A pending block of `being_freed` bytes counts as allocated.
    #[inline]
    pub(super) fn add(&mut self, sample: usize, tiling: &Tiling, being_freed: u64) {
        let state = state_of(tiling, being_freed);
        debug_assert!(are_of_catalogue(&SIZES, &state, |bytes| Amount::Bytes(bytes.into())));
        debug_assert!(are_of_catalogue(&RATIOS, &state, Amount::Ratio));
        self.bytes.add(sample, SIZES.map(|(_, value)| value(&state)));
        self.ratios.add(sample, RATIOS.map(|(_, value)| value(&state)));
    }

    /// The series over `window`. `time` is the time of an entry.
    pub(super) fn finish(&self, window: &Range<usize>, time: impl Fn(usize) -> Option<u64>) -> (Buckets, SeriesSet) {
        let first: Vec<usize> = self.bytes.buckets().iter().map(|bucket| window.start + bucket.first).collect();
        let next = first.iter().skip(1).copied().chain([window.end]);
        let buckets = Buckets {
            first_event: first.iter().map(|entry| *entry as u64).collect(),
            last_event: next.map(|next| next.saturating_sub(1) as u64).collect(),
            time_us: first.iter().map(|entry| time(*entry)).collect(),
        };
        let series =
            SeriesSet { bytes: columns(&self.bytes, window, &time), ratios: columns(&self.ratios, window, &time) };
        (buckets, series)
    }
}

/// Whether `values` are those of the catalogue.
fn are_of_catalogue<T: Copy>(values: &[Valued<T>], state: &MemoryState, amount: fn(T) -> Amount) -> bool {
    values.iter().all(|(figure, value)| figure.at(state) == Some(amount(value(state))))
}

/// The samples of a sampler as one series per column.
fn columns<const N: usize, T: Copy + Default + PartialOrd>(
    sampler: &Sampler<N, T>,
    window: &Range<usize>,
    time: impl Fn(usize) -> Option<u64>,
) -> [Series<T>; N] {
    let (highest, last) = (sampler.peaks(), sampler.last());
    std::array::from_fn(|i| {
        let entry = entry_of_sample(window, highest[i].sample);
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

/// The memory state that [`SIZES`] and [`RATIOS`] need. A pending block of `being_freed` bytes counts as
/// allocated.
#[inline]
fn state_of(tiling: &Tiling, being_freed: u64) -> MemoryState {
    let totals = tiling.totals();
    let kinds = tiling.free_kinds();
    debug_assert!(kinds.is_some(), "a timeline's replay keeps them");
    let kinds = kinds.unwrap_or_default();
    let allocated = totals.allocated + being_freed;
    let sizes = [allocated, totals.active - allocated, totals.reserved - totals.active];
    // No series has the number of blocks.
    let [active_allocated, active_pending_free, inactive] = sizes.map(|bytes| SizedCount { bytes, count: 0 });
    MemoryState {
        reserved: totals.reserved,
        blocks: BlockTotals { active_allocated, active_pending_free, inactive },
        largest_free_block: kinds.largest,
        releasable: kinds.releasable,
        private_reserved: kinds.private_reserved,
        private_free: kinds.private_free,
        ..MemoryState::default()
    }
}
