//! The memory of one device at the compared position.

use super::steps::ComparedMoment;
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::stacks::matching::{Candidate, FrameKey, FrameTable};
use crate::study::memory::{BlockSum, MemoryReport, sorted_by_bytes};
use crate::study::{DeviceStudy, Peak, TracePosition};
use itertools::Itertools as _;

/// The live memory of one stack.
#[derive(Debug)]
pub(super) struct LiveStack {
    pub(super) id: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) frame_keys: Vec<FrameKey>,
}

impl LiveStack {
    /// This stack as a candidate for matching.
    pub(super) fn candidate(&self) -> Candidate<'_> {
        Candidate { frames: &self.frame_keys, weight: self.bytes }
    }
}

/// The memory of a device at the compared position.
#[derive(Debug, Default)]
pub(super) struct ComparedMemory {
    pub(super) memory: MemoryReport,
    pub(super) moment: TracePosition,
    /// Live memory by stack, largest first.
    pub(super) stacks: Vec<LiveStack>,
}

/// The compared position among the entries before `until`, which have the peaks `peak`.
fn moment_of(device: DeviceStudy<'_, '_>, at: ComparedMoment, until: Option<u64>, peak: &Peak) -> TracePosition {
    match (at, until) {
        (ComparedMoment::Peak, None) if ends_at_its_peak(device) => TracePosition::Snapshot,
        (ComparedMoment::Peak, _) => TracePosition::after(peak.allocated_event),
        (ComparedMoment::Snapshot, None) => TracePosition::Snapshot,
        (ComparedMoment::Snapshot, Some(until)) => TracePosition::after(until.checked_sub(1)),
    }
}

impl ComparedMemory {
    /// The memory of `device` on `side` (0 before, 1 after). Only entries before `until` are compared, which have the
    /// peaks `peak`.
    pub(super) fn new(
        (side, device): (usize, DeviceStudy<'_, '_>),
        words: &FrameTable,
        at: ComparedMoment,
        until: Option<u64>,
        peak: &Peak,
    ) -> Self {
        let moment = moment_of(device, at, until, peak);
        let snapshot = device.snapshot();
        let memory = device.memory_at(moment);
        // Different stacks may have the same frames, from other calls or other regions of compiled code.
        let mut by_places: SeededMap<Vec<FrameKey>, (StackId, BlockSum)> = SeededMap::default();
        for (id, held) in sorted_by_bytes(memory.live_by_stack) {
            let places = words.stack_keys(side, snapshot, id);
            let known = by_places.entry(places).or_insert((id, BlockSum::default()));
            known.1 = known.1.plus(held);
        }
        let stack = |(places, (id, held)): (Vec<FrameKey>, (StackId, BlockSum))| LiveStack {
            id,
            bytes: held.bytes,
            blocks: held.blocks,
            frame_keys: places,
        };
        let stacks = by_places.into_iter().map(stack);
        let stacks = stacks.sorted_by_key(|stack| (std::cmp::Reverse(stack.bytes), stack.id)).collect();
        Self { memory: memory.figures, moment, stacks }
    }
}

/// Whether the snapshot itself shows the peak: without a trace, or if memory peaked with the last entry.
fn ends_at_its_peak(device: DeviceStudy<'_, '_>) -> bool {
    let peak = device.peak();
    device.history().is_none_or(|over_time| {
        peak.allocated_event == over_time.trace_entries.checked_sub(1)
            && peak.allocated_bytes == device.memory().allocated_bytes
    })
}
