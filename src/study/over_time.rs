//! A device's memory over time: its totals in a series, and their peaks.

use std::ops::Range;

use serde::Serialize;

use super::window::{self, Window};
use crate::base::units::ratio;
use crate::replay::facts::{Bucket, Highest, Outcome, Sampler, Step};
use crate::snapshot::Device;

/// Buckets of the series: more than a terminal has columns.
const BUCKETS: usize = 512;

/// Index of reserved bytes in a sample of [`OverTime`].
pub const SERIES_RESERVED: usize = 0;
/// Index of allocated bytes in a sample of [`OverTime`].
pub const SERIES_ALLOCATED: usize = 1;
/// Index of the gap ratio, 1 - allocated / reserved, in thousandths, in a sample of [`OverTime`].
pub const SERIES_GAP: usize = 2;

/// The highest totals, with the entry that reached them first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Of allocated memory.
    pub allocated_bytes: u64,
    /// Of reserved memory.
    pub reserved_bytes: u64,
    /// Index in the device's trace; `None` when the peak lies before the first entry.
    pub allocated_event: Option<u64>,
    /// Index in the device's trace; `None` when the peak lies before the first entry.
    pub reserved_event: Option<u64>,
    /// When allocated memory peaked, in microseconds since the epoch, if recorded.
    pub time_us: Option<u64>,
    /// Entries before the first are lost: there may have been more.
    #[serde(rename = "at_least", skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
}

/// The totals of a device over the part of its trace that is looked at.
#[derive(Debug, Clone)]
pub struct OverTime {
    /// Index of the first entry that is looked at.
    pub first: u64,
    /// Entries that are looked at.
    pub events: u64,
    /// Entries in the whole trace.
    pub trace_events: u64,
    /// Microseconds from the first to the last entry, if recorded.
    pub duration_us: Option<u64>,
    /// The series, by `SERIES_*`.
    pub samples: Sampler<3>,
    /// Of each bucket of the series, microseconds from the first entry to its first; empty where not recorded.
    pub times_us: Vec<u64>,
    /// Of each bucket, how many entries of the trace had been applied when most was allocated.
    pub fullest: Vec<u64>,
    /// The highest of them.
    pub peak: Peak,
    /// What the replay of the whole trace found out.
    pub outcome: Outcome,
    /// Whether settings changed as the program ran, so that it was replayed under those that a replay by the model
    /// found out.
    pub has_changed_settings: bool,
}

impl OverTime {
    /// Whether the trace does not begin at an empty allocator.
    pub fn is_truncated(&self) -> bool {
        self.outcome.start.reserved > 0
    }
}

/// Gathers the totals, moment by moment.
pub(super) struct Gatherer<'a> {
    device: Device<'a>,
    window: Range<usize>,
    samples: Sampler<3>,
    /// Of each bucket, the most that was allocated, and after how many entries.
    fullest: Vec<(u64, usize)>,
}

impl<'a> Gatherer<'a> {
    pub(super) fn new(device: Device<'a>, window: Window) -> Self {
        let window = window.of(device);
        let samples = Sampler::new(window.len(), BUCKETS);
        Self { device, window, samples, fullest: Vec::new() }
    }

    pub(super) fn close(self, outcome: Outcome, has_changed_settings: bool) -> OverTime {
        let Self { device, window, samples, fullest } = self;
        let [reserved, allocated, _] = samples.highest();
        let entry_of = |highest: Highest| window::entry_of(&window, highest.sample);
        let peak = Peak {
            allocated_bytes: allocated.value,
            reserved_bytes: reserved.value,
            allocated_event: entry_of(allocated).map(|entry| entry as u64),
            reserved_event: entry_of(reserved).map(|entry| entry as u64),
            time_us: entry_of(allocated).and_then(|entry| device.time_us(entry)),
            is_at_least: false,
        };
        let time = |entry| device.time_us(entry);
        let ends = time(window.start).zip(time(window.end.max(1) - 1));
        let begin = |bucket: &Bucket<3>| time(window.start + bucket.first);
        let times: Option<Vec<u64>> = samples.buckets().iter().map(begin).collect();
        let start = time(window.start).unwrap_or(0);
        OverTime {
            first: window.start as u64,
            events: window.len() as u64,
            trace_events: device.len() as u64,
            duration_us: ends.map(|(start, end)| end.saturating_sub(start)),
            times_us: times
                .unwrap_or_default()
                .into_iter()
                .map(|time| time.saturating_sub(start))
                .collect(),
            fullest: fullest.into_iter().map(|(_, applied)| applied as u64).collect(),
            samples,
            peak,
            outcome,
            has_changed_settings,
        }
    }

    #[inline]
    pub(super) fn see(&mut self, step: &Step<'_>) {
        let entry = step.entry.map(|(index, _)| index);
        let Some(place) = window::place(&self.window, entry) else { return };
        let totals = step.tiling.totals();
        debug_assert!(totals.allocated <= totals.reserved, "blocks exist only inside segments");
        let gap = 1000.0 * ratio(totals.reserved - totals.allocated, totals.reserved);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let gap = gap as u64;
        let begins = self.samples.add(place, [totals.reserved, totals.allocated, gap]);
        let here = (totals.allocated, entry.map_or(0, |entry| entry + 1));
        match self.fullest.last_mut() {
            Some(fullest) if !begins => {
                if here.0 > fullest.0 {
                    *fullest = here;
                }
            }
            _ => self.fullest.push(here),
        }
    }
}
