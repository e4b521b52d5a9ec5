//! Finds the trace entry for a time.

use crate::snapshot::Device;

/// Binary search over the times of a device's trace.
#[derive(Debug, Clone)]
pub struct Clock<'a>(Device<'a>);

impl<'a> Clock<'a> {
    pub fn new(device: Device<'a>) -> Self {
        Self(device)
    }

    /// Whether the trace has times (since PyTorch 2.2).
    pub fn has_times(&self) -> bool {
        self.0.time_us(0).is_some()
    }

    /// The first entry at or after index `from` whose time is at least `time_us`; the trace length if there is none.
    pub fn first_entry_at(&self, from: usize, time_us: u64) -> usize {
        let (mut low, mut high) = (from, self.0.len());
        while low < high {
            let middle = low + (high - low) / 2;
            // Entries without a time count as older than every time.
            if self.0.time_us(middle).unwrap_or(0) < time_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
