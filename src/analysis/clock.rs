//! Entries of a device's trace found by time.

use std::ops::Range;

use crate::snapshot::Snapshot;

/// The times of one device's entries, in order; entries are named by their index in that trace.
#[derive(Debug, Clone)]
pub(super) struct Clock<'a> {
    snapshot: &'a Snapshot,
    rows: Range<usize>,
}

impl<'a> Clock<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, device: usize) -> Self {
        Self { snapshot, rows: snapshot.trace(device) }
    }

    /// Whether the trace has times at all.
    pub(super) fn runs(&self) -> bool {
        !self.rows.is_empty() && self.time(0).is_some()
    }

    /// The first entry from `from` on that is not before `time_us`; how many entries there are if none is.
    pub(super) fn first_at(&self, from: usize, time_us: u64) -> usize {
        let (mut low, mut high) = (from, self.rows.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.time(middle).unwrap_or(0) < time_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn time(&self, index: usize) -> Option<u64> {
        self.snapshot.events.time_us(self.rows.start + index)
    }
}
