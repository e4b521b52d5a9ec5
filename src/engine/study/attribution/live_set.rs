//! The live blocks at one position of a trace.

use crate::base::ids::StackId;
use crate::base::intern::{SeededMap, SeededSet};
use crate::stacks::phases::{Phase, Phases, StackTraits};
use crate::study::DeviceStudy;

/// An entry of the trace with its phase run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TracePoint {
    pub(super) entry: u32,
    /// Number of the phase run, from 1; 0 is before the first run.
    pub(super) run: u32,
}

impl TracePoint {
    /// Before the first entry.
    pub(super) const START: Self = Self { entry: 0, run: 0 };

    /// Index into the phase runs; `None` before the first run.
    pub(super) fn run_index(self) -> Option<usize> {
        (self.run as usize).checked_sub(1)
    }
}

/// A live block.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveBlock {
    /// First address.
    pub address: u64,
    /// Rounded bytes.
    pub bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) stack: StackId,
    /// The stack that allocated it, with its caller and forward stack.
    pub extended_stack: StackId,
    /// `None` if it is older than the recording.
    pub(super) allocated_at: Option<TracePoint>,
    /// `None` if it was live until [`LiveSet::observed_until`].
    pub(super) freed_at: Option<TracePoint>,
    /// Traits of the stack that freed it.
    pub(super) freed_by: StackTraits,
}

impl LiveBlock {
    /// Whether it stays live to the end of the trace.
    pub fn is_kept(&self) -> bool {
        self.freed_at.is_none()
    }

    /// Whether user code dropped the last reference, outside of a backward pass.
    pub(super) fn is_freed_by_program(&self) -> bool {
        is_run_by_program(self.freed_by)
    }
}

/// A block over its lifetime.
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// First address.
    pub address: u64,
    /// Rounded bytes.
    pub bytes: u64,
    /// Bytes before rounding.
    pub requested_bytes: u64,
    /// The allocating stack, with its caller and forward stack.
    pub extended_stack: StackId,
    /// Index of the allocating entry; `None` if the block is older than the trace.
    pub allocated_at: Option<u32>,
    /// Number of entries applied when it was freed; 0 is before the first entry.
    pub freed_after: Option<u32>,
}

/// The traits of the stack that freed a block of `made_by`. With `context="alloc"`, PyTorch records a free under the
/// stack of the allocation, which shows nothing about the free unless both are in one run.
pub(super) fn traits_of_free(phases: &Phases, freed_by: StackId, made_by: StackId, is_in_run: bool) -> StackTraits {
    if freed_by != made_by || is_in_run { phases.stack_traits(freed_by) } else { StackTraits::default() }
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
    pub(super) observed_until: TracePoint,
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

/// A block that is live at the current entry, which the trace allocated.
#[derive(Clone, Copy)]
pub(super) struct OpenBlock {
    pub(super) requested_bytes: u64,
    pub(super) stack: StackId,
    pub(super) allocated_at: TracePoint,
    /// The number of forward passes that had started when it was allocated.
    pub(super) forwards_begun: u32,
}

/// The live blocks at the current entry.
#[derive(Default)]
pub(super) struct OpenBlocks {
    pub(super) by_address: SeededMap<u64, OpenBlock>,
    /// The addresses of those that are older than the trace; `None` if they are not known.
    pub(super) older: Option<SeededSet<u64>>,
}

impl OpenBlocks {
    /// Removes the block at `address` that is older than the trace; false if there is none.
    pub(super) fn remove_older(&mut self, address: u64) -> bool {
        self.older.as_mut().is_some_and(|older| older.remove(&address))
    }
}
