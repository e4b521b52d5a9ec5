//! Series of a device's memory over a part of its trace, in buckets.

use std::ops::Range;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use crate::replay::literal::{Sampler, Tiling};
use crate::study::entry_of_sample;
use crate::study::figures::{Amount, Figure, MemoryState};

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

/// The series that are sizes.
const BYTES: [Figure; 9] = [
    Figure::Reserved,
    Figure::Allocated,
    Figure::Active,
    Figure::Pending,
    Figure::Releasable,
    Figure::Stranded,
    Figure::PrivateFree,
    Figure::PrivateReserved,
    Figure::LargestFreeBlock,
];
/// The series that are ratios.
const RATIOS: [Figure; 3] = [Figure::GapRatio, Figure::StrandedRatio, Figure::ExternalRatio];

/// All series, each by its figure: sizes in bytes, and ratios of them.
#[derive(Debug)]
pub struct SeriesSet {
    bytes: [Series<u64>; BYTES.len()],
    ratios: [Series<f64>; RATIOS.len()],
}

impl SeriesSet {
    /// The sizes.
    pub fn sizes(&self) -> impl Iterator<Item = (Figure, &Series<u64>)> {
        BYTES.into_iter().zip(&self.bytes)
    }

    /// The ratios.
    pub fn ratios(&self) -> impl Iterator<Item = (Figure, &Series<f64>)> {
        RATIOS.into_iter().zip(&self.ratios)
    }

    /// One of the sizes.
    pub fn size(&self, figure: Figure) -> Option<&Series<u64>> {
        self.sizes().find(|(of, _)| *of == figure).map(|(_, series)| series)
    }

    /// One of the ratios.
    pub fn ratio(&self, figure: Figure) -> Option<&Series<f64>> {
        self.ratios().find(|(of, _)| *of == figure).map(|(_, series)| series)
    }
}

impl Serialize for SeriesSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(BYTES.len() + RATIOS.len()))?;
        for (figure, series) in self.sizes() {
            map.serialize_entry(&figure.json_key(), series)?;
        }
        for (figure, series) in self.ratios() {
            map.serialize_entry(&figure.json_key(), series)?;
        }
        map.end()
    }
}

/// Gathers them, moment by moment.
pub(super) struct SeriesBook {
    bytes: Sampler<{ BYTES.len() }>,
    ratios: Sampler<{ RATIOS.len() }, f64>,
}

impl SeriesBook {
    /// For `len` entries, in at most `limit` buckets.
    pub(super) fn new(len: usize, limit: usize) -> Self {
        Self { bytes: Sampler::new(len, limit), ratios: Sampler::new(len, limit) }
    }

    /// The bucket of entry `place`.
    pub(super) fn bucket_of(&self, place: usize) -> usize {
        self.bytes.bucket_index(place)
    }

    /// Adds the moment after entry `place`; a pending block of `being_freed` bytes counts as allocated.
    #[inline]
    pub(super) fn add(&mut self, place: usize, tiling: &Tiling, being_freed: u64) {
        let state = state_of(tiling, being_freed);
        let (bytes, ratios) = (sizes_of(&state), ratios_of(&state));
        debug_assert!(
            is_as_catalogued(&state, bytes, ratios),
            "in the order of BYTES and RATIOS, and as the catalogue reads them"
        );
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
        let series = SeriesSet {
            bytes: columns(&self.bytes, window, &time),
            ratios: columns(&self.ratios, window, &time),
        };
        (buckets, series)
    }
}

/// [`BYTES`] at a moment. Every entry of a trace comes by here: plain reads, no wide amounts of the catalogue.
#[inline]
fn sizes_of(state: &MemoryState) -> [u64; BYTES.len()] {
    [
        state.reserved,
        state.allocated,
        state.active(),
        state.pending,
        state.releasable,
        state.stranded(),
        state.private_free,
        state.private_reserved,
        state.largest_free_block,
    ]
}

/// [`RATIOS`] at a moment.
#[inline]
fn ratios_of(state: &MemoryState) -> [f64; RATIOS.len()] {
    [state.gap_ratio(), state.stranded_ratio(), state.external_ratio()]
}

fn is_as_catalogued(
    state: &MemoryState,
    bytes: [u64; BYTES.len()],
    ratios: [f64; RATIOS.len()],
) -> bool {
    let bytes = BYTES.iter().zip(bytes.map(|bytes| Amount::Bytes(bytes.into())));
    let ratios = RATIOS.iter().zip(ratios.map(Amount::Ratio));
    bytes.chain(ratios).all(|(figure, amount)| figure.at(state) == Some(amount))
}

/// What a sampler gathered, a series at a time.
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

/// The memory at a moment, as far as [`BYTES`] and [`RATIOS`] ask; a pending block of `being_freed` bytes
/// counts as allocated.
#[inline]
fn state_of(tiling: &Tiling, being_freed: u64) -> MemoryState {
    let totals = tiling.totals();
    let kinds = tiling.free_kinds();
    debug_assert!(kinds.is_some(), "a timeline's replay keeps them");
    let kinds = kinds.unwrap_or_default();
    let allocated = totals.allocated + being_freed;
    MemoryState {
        reserved: totals.reserved,
        allocated,
        pending: totals.active - allocated,
        free: totals.reserved - totals.active,
        largest_free_block: kinds.largest,
        releasable: kinds.releasable,
        private_reserved: kinds.private_reserved,
        private_free: kinds.private_free,
        ..MemoryState::default()
    }
}
