//! A device's trace over time: peaks, a series for a chart, and every failed request.

use std::collections::VecDeque;

use serde::Serialize;

use super::oom::{self, OomReport};
use super::snapshot::Options;
use super::window;
use crate::conf::Settings;
use crate::frames::StackReader;
use crate::replay::{Highest, Keep, Literal, Outcome, Sampler};
use crate::snapshot::{Action, Device};
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
    device: Device<'_>,
    stacks: &StackReader<'_>,
    settings: &Settings,
    options: Options,
) -> Option<History> {
    if device.is_empty() {
        return None;
    }
    let window = options.window.of(device);
    let mut samples = Sampler::new(window.len(), BUCKETS);
    let mut ooms = VecDeque::new();
    let mut oom_count = 0;
    let oom_total = device.failed().count() as u64;
    let keep = if oom_total > 0 { Keep::Sizes } else { Keep::Sums };
    let outcome = Literal { device, settings }.run(keep, |step| {
        let Some(place) = window::place(&window, step.entry.map(|(index, _)| index)) else {
            return;
        };
        let totals = step.tiling.totals();
        let gap = 1000.0 * ratio(totals.reserved - totals.allocated, totals.reserved);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let gap = gap as u64;
        samples.add(place, [totals.reserved, totals.allocated, gap]);
        if let Some((index, event)) = step.entry
            && event.action == Action::Oom
            && window.contains(&index)
        {
            oom_count += 1;
            if ooms.len() == MAX_OOMS {
                ooms.pop_front();
            }
            ooms.push_back(oom::report(
                device.snapshot(),
                stacks,
                settings,
                options.capacity,
                step,
                (index, event),
                oom_count + DESCRIBED_OOMS as u64 > oom_total,
            ));
        }
    });
    let [reserved, allocated, _] = samples.highest();
    let entry_of = |highest: Highest| window::entry_of(&window, highest.sample);
    let time = |index| device.time_us(index);
    let peak = Peak {
        allocated_bytes: allocated.value,
        reserved_bytes: reserved.value,
        allocated_event: entry_of(allocated).map(|entry| entry as u64),
        reserved_event: entry_of(reserved).map(|entry| entry as u64),
        time_us: entry_of(allocated).and_then(|entry| time(entry)),
    };
    let ends = (window.start, window.end.max(1) - 1);
    let timeline = Timeline {
        first: window.start as u64,
        events: window.len() as u64,
        trace_events: device.len() as u64,
        duration_us: time(ends.0).zip(time(ends.1)).map(|(a, b)| b.saturating_sub(a)),
        samples,
    };
    Some(History { peak, timeline, oom_count, ooms: ooms.into(), outcome })
}
