//! What the recorded calls take of a pool that holds nothing: figures that earlier work cannot change.

use serde::Serialize;

use crate::replay::ops::Program;
use crate::replay::model::{Hypothesis, simulate};
use crate::snapshot::Device;

/// Peaks of one device, as the recorded calls and settings alone make them: replayed from an empty pool,
/// on a device without bounds. What the program held when the recording began counts; what the pool had
/// cached then, and where it lay, does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeaksFromEmpty {
    /// Device number.
    pub device: u64,
    /// The most that the program holds.
    pub peak_allocated_bytes: u64,
    /// The most that is held from the device.
    pub peak_reserved_bytes: u64,
}

pub(super) fn replay_from_empty(device: Device<'_>, hypothesis: &Hypothesis) -> PeaksFromEmpty {
    let program = Program::from_trace(device, &hypothesis.settings).with_empty_start();
    let unbounded = Hypothesis { capacity: None, limit: None, ..hypothesis.clone() };
    let done = simulate(&program, &unbounded, None);
    let statistics = done.allocator.statistics();
    PeaksFromEmpty {
        device: device.id(),
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
    }
}
