//! The blocks that are live while a trace is read.

use super::live_set::LiveBlock;
use crate::base::intern::SeededMap;
use crate::stacks::frames::StackReader;
use crate::stacks::phases::StackTraits;
use crate::study::block_sizes::{BlockSizes, InitialBlock};

/// A block that is live at the current entry.
#[derive(Clone, Copy)]
pub(super) struct OpenBlock {
    pub(super) block: LiveBlock,
    /// Its bytes, after entries that contradict the state shortened it; 0 if they removed it.
    pub(super) bytes_left: u64,
    /// The number of forward passes that had started when it was allocated.
    pub(super) forwards_begun: usize,
    /// Whether it is in a live set.
    pub(super) is_in_live_set: bool,
}

/// The live blocks at the current entry, by address.
pub(super) type OpenBlocks = SeededMap<u64, OpenBlock>;

impl OpenBlock {
    pub(super) fn new(block: LiveBlock, forwards_begun: usize) -> Self {
        Self { block, bytes_left: block.bytes, forwards_begun, is_in_live_set: false }
    }

    /// The block as it is now.
    pub(super) fn live_block(&self) -> LiveBlock {
        let requested_bytes = self.block.requested_bytes.min(self.block.bytes);
        LiveBlock { bytes: self.bytes_left, requested_bytes, ..self.block }
    }
}

/// The blocks that are live before the first entry.
pub(super) fn open_initial_blocks(stacks: &StackReader<'_>, block_sizes: &BlockSizes) -> OpenBlocks {
    let open = |block: &InitialBlock| {
        let InitialBlock { address, bytes, requested_bytes, extended_stack } = *block;
        let block = LiveBlock {
            address,
            bytes,
            requested_bytes,
            stack: stacks.recorded_stack(extended_stack),
            extended_stack,
            allocated_at: None,
            freed_at: None,
            freed_by: StackTraits::default(),
        };
        (address, OpenBlock::new(block, 0))
    };
    block_sizes.initial.iter().map(open).collect()
}
