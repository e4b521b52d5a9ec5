//! Replays the recorded calls from an empty pool, so that earlier work cannot change the peaks.

use serde::Serialize;

use crate::replay::model::{Hypothesis, simulate};
use crate::replay::ops::Program;
use crate::snapshot::Device;

/// Peaks of one device, replayed from an empty pool on a device of unlimited size. Blocks that were live when the
/// recording started count; what the pool had cached then does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeaksFromEmpty {
    /// Device index.
    pub device: u64,
    /// Peak allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Peak reserved bytes.
    pub peak_reserved_bytes: u64,
}

pub(super) fn replay_from_empty(device: Device<'_>, hypothesis: &Hypothesis) -> PeaksFromEmpty {
    let program = Program::from_trace(device, &hypothesis.settings).with_empty_start();
    let unbounded = Hypothesis { capacity: None, limit: None, ..hypothesis.clone() };
    let outcome = simulate(&program, &unbounded, None);
    let statistics = outcome.allocator.statistics();
    PeaksFromEmpty {
        device: device.id(),
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
    }
}
