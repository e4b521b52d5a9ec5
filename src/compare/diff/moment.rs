//! One device of one snapshot at the moment compared.

use super::options::At;
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::stacks::matching::{Candidate, FrameKey, FrameTable};
use crate::study::memory::{BlockSum, MemoryReport, sorted_by_bytes};
use crate::study::{DeviceStudy, Peak, TracePosition};

/// What one stack holds.
#[derive(Debug)]
pub(super) struct HeldStack {
    pub(super) id: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) places: Vec<FrameKey>,
}

impl HeldStack {
    /// To be found on the other side.
    pub(super) fn candidate(&self) -> Candidate<'_> {
        Candidate { frames: &self.places, weight: self.bytes }
    }
}

/// The memory of a device at the moment compared.
#[derive(Debug, Default)]
pub(super) struct ComparedMemory {
    pub(super) memory: MemoryReport,
    pub(super) moment: TracePosition,
    /// Who holds the allocated memory, most first.
    pub(super) stacks: Vec<HeldStack>,
}

/// The moment `at`, in the entries before `until` whose highest totals are `peak`.
fn moment_of(
    device: DeviceStudy<'_, '_>,
    at: At,
    until: Option<u64>,
    peak: &Peak,
) -> TracePosition {
    match (at, until) {
        (At::Peak, None) if ends_at_its_peak(device) => TracePosition::Snapshot,
        (At::Peak, _) => TracePosition::after(peak.allocated_event),
        (At::Snapshot, None) => TracePosition::Snapshot,
        (At::Snapshot, Some(until)) => TracePosition::after(until.checked_sub(1)),
    }
}

impl ComparedMemory {
    /// Looks at `device` of the snapshot before (`side` 0) or after (1) at the moment `at`, in the entries
    /// before `until` whose highest totals are `peak`.
    pub(super) fn new(
        (side, device): (usize, DeviceStudy<'_, '_>),
        words: &FrameTable,
        at: At,
        until: Option<u64>,
        peak: &Peak,
    ) -> Self {
        let moment = moment_of(device, at, until, peak);
        let snapshot = device.snapshot();
        let memory = device.memory_at(moment);
        // Stacks of other calls, or of other regions of compiled code, may have the same frames.
        let mut by_places: SeededMap<Vec<FrameKey>, (StackId, BlockSum)> = SeededMap::default();
        for (id, held) in sorted_by_bytes(memory.live_by_stack) {
            let places = words.stack_keys(side, snapshot, id);
            let known = by_places.entry(places).or_insert((id, BlockSum::default()));
            known.1 = known.1.plus(held);
        }
        let stack = |(places, (id, held)): (Vec<FrameKey>, (StackId, BlockSum))| HeldStack {
            id,
            bytes: held.bytes,
            blocks: held.blocks,
            places,
        };
        let mut stacks: Vec<HeldStack> = by_places.into_iter().map(stack).collect();
        stacks.sort_by_key(|stack| (std::cmp::Reverse(stack.bytes), stack.id));
        Self { memory: memory.figures, moment, stacks }
    }
}

/// Whether the snapshot itself shows the peak: nothing was recorded, or it grew up to the last entry.
fn ends_at_its_peak(device: DeviceStudy<'_, '_>) -> bool {
    let peak = device.peak();
    device.history().is_none_or(|over_time| {
        peak.allocated_event == over_time.trace_entries.checked_sub(1)
            && peak.allocated_bytes == device.memory().allocated_bytes
    })
}
