//! A device's trace over time: peaks, a series for a chart, and every failed request.

use std::collections::VecDeque;

use serde::Serialize;

use super::frames::StackReader;
use super::oom::{self, OomReport};
use crate::conf::Settings;
use crate::replay::{Literal, Outcome, Sampler};
use crate::snapshot::{Action, Snapshot};
use crate::units::ratio;

/// Buckets of a series: more than a terminal has columns.
const BUCKETS: usize = 512;
/// Failed requests described, the last ones: a program that retries for ever fails a million times.
pub(super) const MAX_OOMS: usize = 1000;

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
    /// Entries in the trace.
    pub events: u64,
    /// Microseconds from the first to the last entry, if recorded.
    pub duration_us: Option<u64>,
    /// The series, by `SERIES_*`.
    pub samples: Sampler<3>,
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
) -> Option<History> {
    let rows = snapshot.trace(device);
    if rows.is_empty() {
        return None;
    }
    let has_ooms = rows.clone().any(|row| snapshot.events.action(row) == Some(Action::Oom));
    let mut peak = Peak::default();
    let mut samples = Sampler::new(rows.len(), BUCKETS);
    let mut ooms = VecDeque::new();
    let mut oom_count = 0;
    let outcome = Literal { snapshot, device, settings }.run(has_ooms, |step| {
        let totals = step.tiling.totals();
        let index = step.entry.map(|(index, _)| index);
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
        samples.add(index.unwrap_or(0), [totals.reserved, totals.allocated, gap]);
        if let Some((index, event)) = step.entry
            && event.action == Action::Oom
        {
            oom_count += 1;
            if ooms.len() == MAX_OOMS {
                ooms.pop_front();
            }
            ooms.push_back(oom::report(snapshot, stacks, settings, step, (index, event)));
        }
    });
    let time = |row| snapshot.events.time_us(row);
    let timeline = Timeline {
        events: rows.len() as u64,
        duration_us: time(rows.start).zip(time(rows.end - 1)).map(|(a, b)| b.saturating_sub(a)),
        samples,
    };
    Some(History { peak, timeline, oom_count, ooms: ooms.into(), outcome })
}
