//! The blocks that are live while a trace is read.

use super::live_set::{LiveBlock, TracePoint};
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::stacks::frames::StackReader;
use crate::stacks::phases::StackTraits;
use crate::study::block_sizes::{BlockSizes, InitialBlock};

/// A block that is live at the current entry.
#[derive(Clone, Copy)]
pub(super) struct OpenBlock {
    pub(super) stack: StackId,
    pub(super) extended_stack: StackId,
    pub(super) bytes: u64,
    /// The same, after entries that contradict the state shortened it; 0 if they removed it.
    pub(super) bytes_left: u64,
    pub(super) requested_bytes: u64,
    pub(super) allocated_at: Option<TracePoint>,
    /// The number of forward passes that had started when it was allocated.
    pub(super) forwards_begun: usize,
    /// Whether it is in a live set.
    pub(super) is_in_live_set: bool,
}

/// The live blocks at the current entry, by address.
pub(super) type OpenBlocks = SeededMap<u64, OpenBlock>;

impl OpenBlock {
    /// `freed` is where it was freed, with the traits of the freeing stack.
    pub(super) fn block(self, address: u64, freed: Option<(TracePoint, StackTraits)>) -> LiveBlock {
        let Self { stack, extended_stack, bytes, requested_bytes, allocated_at, .. } = self;
        let (freed_at, freed_by) = freed.unzip();
        let freed_by = freed_by.unwrap_or_default();
        LiveBlock { address, bytes, requested_bytes, stack, extended_stack, allocated_at, freed_at, freed_by }
    }

    /// The block as it is now.
    pub(super) fn live_block(&self, address: u64) -> LiveBlock {
        let requested_bytes = self.requested_bytes.min(self.bytes);
        LiveBlock { bytes: self.bytes_left, requested_bytes, ..self.block(address, None) }
    }
}

/// The blocks that are live before the first entry.
pub(super) fn open_initial_blocks(stacks: &StackReader<'_>, block_sizes: &BlockSizes) -> OpenBlocks {
    let open = |block: &InitialBlock| {
        let InitialBlock { address, bytes, requested_bytes, extended_stack } = *block;
        let stack = stacks.recorded_stack(extended_stack);
        let block = OpenBlock {
            stack,
            extended_stack,
            bytes,
            bytes_left: bytes,
            requested_bytes,
            allocated_at: None,
            forwards_begun: 0,
            is_in_live_set: false,
        };
        (address, block)
    };
    block_sizes.initial.iter().map(open).collect()
}
