//! The live blocks at one position of a trace.

use crate::base::ids::StackId;
use crate::stacks::phases::{Phase, StackTraits};
use crate::study::DeviceStudy;

/// An entry of the trace with its phase run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracePoint {
    pub(super) entry: u32,
    /// Number of the phase run, from 1; 0 is before the first run.
    pub(super) run: u32,
}

impl TracePoint {
    /// Index into the phase runs; `None` before the first run.
    pub(super) fn run_index(self) -> Option<usize> {
        (self.run as usize).checked_sub(1)
    }
}

/// A live block.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveBlock {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) stack: StackId,
    /// The stack with its caller and forward stack.
    pub(super) extended_stack: StackId,
    /// `None` if it is older than the recording.
    pub(super) allocated_at: Option<TracePoint>,
    /// `None` if it was live until [`LiveSet::observed_until`].
    pub(super) freed_at: Option<TracePoint>,
    /// Traits of the stack that freed it.
    pub(super) freed_by: StackTraits,
}

impl LiveBlock {
    /// Whether user code dropped the last reference, outside of a backward pass.
    pub(super) fn is_freed_by_program(&self) -> bool {
        is_run_by_program(self.freed_by)
    }
}

/// Whether user code ran, outside of a backward pass.
pub(super) fn is_run_by_program(traits: StackTraits) -> bool {
    traits.caller.is_some() && traits.phase != Some(Phase::Backward)
}

/// The live blocks at one position, by address.
#[derive(Debug)]
pub(super) struct LiveSet {
    /// The entry that the position follows; `None` for the start of the trace.
    pub(super) entry: Option<usize>,
    pub(super) point: TracePoint,
    /// Frees count up to here: the next failed request, or the last allocation. Later frees are teardown and say
    /// nothing about the purpose of a block.
    pub(super) observed_until: Option<TracePoint>,
    pub(super) blocks: Vec<LiveBlock>,
}

impl LiveSet {
    /// Removes the blocks that were not on the device, because an engine had unmapped them.
    pub(super) fn remove_asleep(&mut self, device: DeviceStudy<'_, '_>) {
        let Some(sleep) = device.sleep() else { return };
        let is_asleep = sleep.asleep_after(device.device(), self.entry);
        self.blocks.retain(|block| !is_asleep(block.address));
    }
}
