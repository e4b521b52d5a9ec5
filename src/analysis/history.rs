//! A device's trace over time: peaks, a series for a chart, and every failed request.

use std::collections::VecDeque;
use std::ops::Range;

use serde::Serialize;

use super::frames::StackReader;
use super::oom::{self, OomReport};
use super::snapshot::Options;
use crate::conf::Settings;
use crate::replay::{Keep, Literal, Outcome, Sampler};
use crate::snapshot::{Action, Snapshot};
use crate::units::ratio;

/// Buckets of a series: more than a terminal has columns.
const BUCKETS: usize = 512;
/// Failed requests described, the last ones: a program that retries for ever fails a million times.
pub(super) const MAX_OOMS: usize = 1000;
/// Failures at the end of a trace for which every block is looked at.
pub(super) const DESCRIBED_OOMS: usize = 16;

/// Index of reserved bytes in a [`Timeline`] sample.
pub const SERIES_RESERVED: usize = 0;
/// Index of allocated bytes in a [`Timeline`] sample.
pub const SERIES_ALLOCATED: usize = 1;
/// Index of the gap ratio, 1 - allocated / reserved, in thousandths, in a [`Timeline`] sample.
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
}

/// Totals over the trace.
#[derive(Debug, Clone)]
pub struct Timeline {
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
}

/// Which part of a trace to look at. What came before counts as the state at its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Window {
    /// All of it.
    #[default]
    Whole,
    /// From one index up to, not including, another; the end where there is none.
    Between(Option<u64>, Option<u64>),
    /// This many entries at the end.
    Last(u64),
    /// This many entries before and after the last failed request; all of it where none failed.
    AroundOom(u64),
}

impl Window {
    /// The indices it stands for in a trace of `len` entries whose last failed request is `oom`.
    fn indices(self, len: usize, oom: Option<usize>) -> Range<usize> {
        let clamp = |n: u64| usize::try_from(n).unwrap_or(len).min(len);
        let range = match (self, oom) {
            (Self::Whole, _) | (Self::AroundOom(_), None) => 0..len,
            (Self::Between(from, to), _) => clamp(from.unwrap_or(0))..clamp(to.unwrap_or(u64::MAX)),
            (Self::Last(n), _) => len - clamp(n)..len,
            (Self::AroundOom(n), Some(oom)) => {
                oom.saturating_sub(clamp(n))
                    ..oom.saturating_add(clamp(n)).saturating_add(1).min(len)
            }
        };
        range.start..range.end.max(range.start)
    }
}

/// What one replay of a device's trace tells.
#[derive(Debug)]
pub(super) struct History {
    pub(super) peak: Peak,
    pub(super) timeline: Timeline,
    /// All failed requests.
    pub(super) oom_count: u64,
    /// The last of them.
    pub(super) ooms: Vec<OomReport>,
    pub(super) outcome: Outcome,
}

/// Replays `device`'s trace; `None` when it has none.
pub(super) fn history(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    device: usize,
    settings: &Settings,
    options: Options,
) -> Option<History> {
    let rows = snapshot.trace(device);
    if rows.is_empty() {
        return None;
    }
    let is_oom = |row: &usize| snapshot.events.action(*row) == Some(Action::Oom);
    let last_oom = rows.clone().rev().find(is_oom).map(|row| row - rows.start);
    let window = options.window.indices(rows.len(), last_oom);
    let mut peak = Peak::default();
    let mut samples = Sampler::new(window.len(), BUCKETS);
    let mut ooms = VecDeque::new();
    let mut oom_count = 0;
    let is_oom = |row: &usize| snapshot.events.action(*row) == Some(Action::Oom);
    let oom_total = snapshot.trace(device).filter(is_oom).count() as u64;
    let keep = if last_oom.is_some() { Keep::Sizes } else { Keep::Sums };
    let outcome = Literal { snapshot, device, settings }.run(keep, |step| {
        let totals = step.tiling.totals();
        let index = step.entry.map(|(index, _)| index);
        if let Some(index) = index.filter(|index| !window.contains(index)) {
            if index < window.start {
                // The state in which the window begins.
                peak = Peak {
                    allocated_bytes: totals.allocated,
                    reserved_bytes: totals.reserved,
                    ..Peak::default()
                };
            }
            return;
        }
        if index.is_none() && window.start > 0 {
            return; // the state in which the window begins comes later
        }
        if totals.allocated > peak.allocated_bytes {
            peak.allocated_bytes = totals.allocated;
            peak.allocated_event = index.map(|i| i as u64);
            peak.time_us = step.entry.map(|(_, event)| event.time_us).filter(|t| *t != 0);
        }
        if totals.reserved > peak.reserved_bytes {
            peak.reserved_bytes = totals.reserved;
            peak.reserved_event = index.map(|i| i as u64);
        }
        let gap = 1000.0 * ratio(totals.reserved - totals.allocated, totals.reserved);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let gap = gap as u64;
        samples.add(
            index.map_or(0, |index| index - window.start),
            [totals.reserved, totals.allocated, gap],
        );
        if let Some((index, event)) = step.entry
            && event.action == Action::Oom
        {
            oom_count += 1;
            if ooms.len() == MAX_OOMS {
                ooms.pop_front();
            }
            ooms.push_back(oom::report(
                snapshot,
                stacks,
                settings,
                options.capacity,
                step,
                (index, event),
                oom_count + DESCRIBED_OOMS as u64 > oom_total,
            ));
        }
    });
    let time = |row| snapshot.events.time_us(row);
    let ends = (rows.start + window.start, rows.start + window.end.max(1) - 1);
    let timeline = Timeline {
        first: window.start as u64,
        events: window.len() as u64,
        trace_events: rows.len() as u64,
        duration_us: time(ends.0).zip(time(ends.1)).map(|(a, b)| b.saturating_sub(a)),
        samples,
    };
    Some(History { peak, timeline, oom_count, ooms: ooms.into(), outcome })
}
