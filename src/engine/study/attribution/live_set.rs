//! The live blocks at one position of a trace.

use crate::allocator::BlockView;
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::snapshot::TraceEntry;
use crate::stacks::frames::StackReader;
use crate::stacks::phases::{Phase, StackTraits};
use crate::study::DeviceStudy;
use crate::study::block_sizes::BlockSizes;

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

/// A block that is live at the current entry.
#[derive(Clone, Copy, Default)]
pub(super) struct OpenBlock {
    pub(super) requested_bytes: u64,
    /// Its bytes when it was allocated.
    bytes: u64,
    /// Its bytes, after entries that contradict the state shortened it; 0 if they removed it.
    pub(super) bytes_left: u64,
    pub(super) stack: StackId,
    extended_stack: StackId,
    /// `None` if it is older than the recording.
    pub(super) allocated_at: Option<TracePoint>,
    /// The number of forward passes that had started when it was allocated.
    pub(super) forwards_begun: usize,
    /// Whether it is in a live set.
    pub(super) is_in_live_set: bool,
}

/// The live blocks at the current entry, by address.
pub(super) type OpenBlocks = SeededMap<u64, OpenBlock>;

impl OpenBlock {
    /// The block of `entry`, which is at `point`.
    pub(super) fn new(entry: &TraceEntry, bytes: u64, point: TracePoint, forwards_begun: usize) -> Self {
        let TraceEntry { size: requested_bytes, stack, extended_stack, .. } = *entry;
        let (bytes_left, allocated_at, is_in_live_set) = (bytes, Some(point), false);
        Self { requested_bytes, bytes, bytes_left, stack, extended_stack, allocated_at, forwards_begun, is_in_live_set }
    }

    /// The block as it is now.
    pub(super) fn live_block(&self, address: u64) -> LiveBlock {
        let Self { bytes_left: bytes, stack, extended_stack, allocated_at, .. } = *self;
        let requested_bytes = self.requested_bytes.min(self.bytes);
        LiveBlock { address, bytes, requested_bytes, stack, extended_stack, allocated_at, ..LiveBlock::default() }
    }
}

/// The blocks that are live before the first entry.
pub(super) fn open_initial_blocks(stacks: &StackReader<'_>, block_sizes: &BlockSizes) -> OpenBlocks {
    let open = |block: &BlockView| {
        let BlockView { addr, size: bytes, requested: requested_bytes, context: extended_stack, .. } = *block;
        let stack = stacks.recorded_stack(extended_stack);
        let open =
            OpenBlock { requested_bytes, bytes, bytes_left: bytes, stack, extended_stack, ..OpenBlock::default() };
        (addr, open)
    };
    block_sizes.initial.iter().map(open).collect()
}
