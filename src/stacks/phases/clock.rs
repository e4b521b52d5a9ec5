//! Entries of a device's trace found by time.

use crate::snapshot::Device;

/// The times of one device's entries, in order; entries are named by their index in that trace.
#[derive(Debug, Clone)]
pub(crate) struct Clock<'a>(Device<'a>);

impl<'a> Clock<'a> {
    pub(crate) fn of(device: Device<'a>) -> Self {
        Self(device)
    }

    /// Whether the trace has times at all.
    pub(crate) fn runs(&self) -> bool {
        self.0.time_us(0).is_some()
    }

    /// The first entry from `from` on that is not before `time_us`; how many entries there are if none is.
    pub(crate) fn first_at(&self, from: usize, time_us: u64) -> usize {
        let (mut low, mut high) = (from, self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.0.time_us(middle).unwrap_or(0) < time_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
