//! The part of a trace to study, and a device's totals over it: a bucketed series, and the peaks.

use std::ops::Range;

use serde::Serialize;

use crate::replay::literal::{LiteralOutcome, ReplayStep, Sampler};
use crate::snapshot::Device;

/// A part of a trace, a half-open range of entry indexes; by default all of it. Earlier entries only determine the state
/// at its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// The first entry; `None` is the start of the trace.
    pub from: Option<Bound>,
    /// The entry after the last; `None` is the end of the trace.
    pub to: Option<Bound>,
}

/// An end of a part of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// This entry index.
    Entry(u64),
    /// This many entries before the end of the trace.
    BeforeEnd(u64),
    /// This many entries before (negative) or after the last failed request; without a failure, the same as an open
    /// end.
    FromFailure(i64),
}

impl Window {
    /// The selected entry indexes in the trace of `device`.
    pub(crate) fn range_in(self, device: Device<'_>) -> Range<usize> {
        let [from, to] = [self.from, self.to].map(|bound| bound?.entry_in(device));
        let start = from.unwrap_or(0);
        start..to.unwrap_or(device.len()).max(start)
    }
}

impl Bound {
    /// The entry index in the trace of `device`, up to its length; `None` for an open end.
    fn entry_in(self, device: Device<'_>) -> Option<usize> {
        let len = device.len() as i128;
        let entry = match self {
            Self::Entry(entry) => entry.into(),
            Self::BeforeEnd(entries) => len - i128::from(entries),
            Self::FromFailure(entries) => device.failed_requests().next_back()? as i128 + i128::from(entries),
        };
        usize::try_from(entry.clamp(0, len)).ok()
    }
}

/// The sample for the state after `entry` (`None`: before the first), or `None` outside `window`. Sample 0 covers both
/// the state at the window's start and its first entry.
#[inline]
pub fn sample_index(window: &Range<usize>, entry: Option<usize>) -> Option<usize> {
    let applied = entry.map_or(0, |index| index + 1);
    (window.start..=window.end).contains(&applied).then(|| applied.saturating_sub(window.start + 1))
}

/// The entry of state number `sample` of `window`; `None` for the state at its start, which is number 0.
pub fn entry_of_sample(window: &Range<usize>, sample: usize) -> Option<usize> {
    sample.checked_sub(1).map(|after| window.start + after)
}

/// Buckets of the series; more than a terminal has columns.
const MAX_BUCKETS: usize = 512;

/// Index of reserved bytes in a sample of [`MemoryHistory::samples`].
pub const SERIES_RESERVED: usize = 0;
/// Index of allocated bytes in a sample of [`MemoryHistory::samples`].
pub const SERIES_ALLOCATED: usize = 1;

/// The peaks of a device's totals, with the entry that first reached each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// Peak allocated bytes.
    pub allocated_bytes: u64,
    /// Peak reserved bytes.
    pub reserved_bytes: u64,
    /// Entry index of the peak of allocated bytes; null if it lies before the first entry of the window.
    pub allocated_event: Option<u64>,
    /// Entry index of the peak of reserved bytes; null if it lies before the first entry of the window.
    pub reserved_event: Option<u64>,
    /// Time of the peak of allocated bytes in microseconds since the epoch; null if not recorded.
    pub time_us: Option<u64>,
    /// Reserved bytes at the peak of allocated bytes.
    #[serde(skip)]
    pub reserved_then: u64,
    /// The peaks are lower bounds, because earlier entries are lost; absent if false.
    #[serde(rename = "at_least", skip_serializing_if = "std::ops::Not::not")]
    pub is_lower_bound: bool,
}

/// The totals of a device over the window of its trace.
#[derive(Debug, Clone)]
pub struct MemoryHistory {
    /// Index of the first entry of the window.
    pub first_entry: u64,
    /// Number of entries in the window.
    pub entries: u64,
    /// Number of entries in the whole trace.
    pub trace_entries: u64,
    /// Microseconds from the first to the last entry of the window, if recorded.
    pub duration_us: Option<u64>,
    /// Buckets of samples, indexed by `SERIES_*`.
    pub samples: Sampler<2>,
    /// Highest allocated and reserved bytes in the window.
    pub peak: Peak,
    /// Result of the literal replay of the whole trace.
    pub outcome: LiteralOutcome,
    /// The settings changed at run time; the replay used those that the model inferred.
    pub has_changed_settings: bool,
}

impl MemoryHistory {
    /// The entry of the peak of allocated bytes; the one before the window if that starts with the peak.
    pub fn peak_entry(&self) -> Option<u64> {
        self.peak.allocated_event.or(self.first_entry.checked_sub(1))
    }

    /// Whether memory was already reserved before the first entry.
    pub fn is_truncated(&self) -> bool {
        self.outcome.initial_totals.reserved > 0
    }
}

/// Collects the totals during a literal replay.
pub(super) struct HistoryBuilder<'a> {
    device: Device<'a>,
    window: Range<usize>,
    samples: Sampler<2>,
    /// Reserved and allocated bytes of the last sample.
    last: Option<(u64, u64)>,
    /// Allocated and reserved bytes at the peak of allocated bytes.
    at_peak: (u64, u64),
}

impl<'a> HistoryBuilder<'a> {
    pub(super) fn new(device: Device<'a>, window: Window) -> Self {
        let window = window.range_in(device);
        let samples = Sampler::new(window.len(), MAX_BUCKETS);
        Self { device, window, samples, last: None, at_peak: (0, 0) }
    }

    pub(super) fn finish(self, outcome: LiteralOutcome, has_changed_settings: bool) -> MemoryHistory {
        let Self { device, window, samples, last: _, at_peak } = self;
        let [reserved, allocated] = samples.peaks();
        let peak = Peak {
            allocated_bytes: allocated.value,
            reserved_bytes: reserved.value,
            allocated_event: entry_of_sample(&window, allocated.sample).map(|entry| entry as u64),
            reserved_event: entry_of_sample(&window, reserved.sample).map(|entry| entry as u64),
            time_us: entry_of_sample(&window, allocated.sample).and_then(|entry| device.time_us(entry)),
            reserved_then: at_peak.1,
            is_lower_bound: false,
        };
        let ends = device.time_us(window.start).zip(device.time_us(window.end.max(1) - 1));
        MemoryHistory {
            first_entry: window.start as u64,
            entries: window.len() as u64,
            trace_entries: device.len() as u64,
            duration_us: ends.map(|(start, end)| end.saturating_sub(start)),
            samples,
            peak,
            outcome,
            has_changed_settings,
        }
    }

    #[expect(clippy::inline_always, reason = "called for every entry")]
    #[inline(always)]
    pub(super) fn add_step(&mut self, step: &ReplayStep<'_>) {
        let Some(sample) = sample_index(&self.window, step.at.map(|(index, _)| index)) else {
            return; // outside the window
        };
        let totals = step.tiling.totals();
        debug_assert!(totals.allocated <= totals.reserved, "blocks exist only inside segments");
        let current = Some((totals.reserved, totals.allocated));
        if std::mem::replace(&mut self.last, current) == current && self.samples.repeat(sample) {
            return;
        }
        if totals.allocated > self.at_peak.0 {
            self.at_peak = (totals.allocated, totals.reserved);
        }
        self.samples.add(sample, [totals.reserved, totals.allocated]);
    }
}
