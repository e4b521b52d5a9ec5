//! The sizes of live blocks, which no entry records, as the literal replay infers them.

use crate::allocator::BlockView;
use crate::base::ids::to_u32;
use crate::replay::literal::ReplayStep;
use crate::snapshot::{Action, BlockState, Device};

/// Blocks are as large as their requests, rounded up to this, unless a request took a whole free block.
const ROUNDING: u64 = 512;

/// The sizes of the live blocks of a trace.
#[derive(Debug, Default)]
pub(crate) struct BlockSizes {
    /// The live blocks before the first entry.
    pub(crate) initial: Vec<BlockView>,
    /// Entries with the sizes of their blocks, where they are not the rounded requests; 0 if the entry contradicts the
    /// state and there is no block.
    unusual: Vec<(u32, u64)>,
    /// See [`SizeChange`]; by entry.
    changes: Vec<(u32, SizeChange)>,
}

/// An entry that contradicts the state shortened or removed a live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeChange {
    pub(crate) address: u64,
    /// 0 if the block is gone.
    pub(crate) bytes: u64,
}

fn usual_bytes(requested: u64) -> u64 {
    requested.div_ceil(ROUNDING).saturating_mul(ROUNDING)
}

impl BlockSizes {
    /// The live blocks of a snapshot without a trace.
    pub(crate) fn at_snapshot(device: Device<'_>) -> Self {
        let live = device.blocks().filter(|block| block.state == BlockState::ActiveAllocated);
        Self { initial: live.map(BlockView::from).collect(), ..Self::default() }
    }

    /// Records what `step` changed. The steps come in order.
    #[expect(clippy::inline_always, reason = "called for every entry")]
    #[inline(always)]
    pub(super) fn add_step(&mut self, step: &ReplayStep<'_>, device: Device<'_>) {
        let Some((index, action)) = step.at else {
            self.initial.extend(step.tiling.active_blocks().filter(|block| block.state == BlockState::ActiveAllocated));
            return;
        };
        if action == Action::Alloc {
            let bytes = step.tiling.allocated_bytes();
            if bytes != usual_bytes(device.entry(index).size) {
                self.unusual.push((to_u32(index), bytes));
            }
        }
        for address in step.tiling.damaged_blocks() {
            let bytes = match step.tiling.block_at(*address) {
                Some((bytes, BlockState::ActiveAllocated)) => bytes,
                _ => 0,
            };
            self.changes.push((to_u32(index), SizeChange { address: *address, bytes }));
        }
    }

    /// The size of the block that entry `index` allocates for a request of `requested` bytes.
    pub(crate) fn allocated_bytes(&self, index: u32, requested: u64) -> u64 {
        match self.unusual.binary_search_by_key(&index, |(entry, _)| *entry) {
            Ok(row) => self.unusual[row].1,
            Err(_) => usual_bytes(requested),
        }
    }

    /// The entries that contradict the state so that they allocate no block, in order.
    pub(crate) fn missing_blocks(&self) -> impl Iterator<Item = u32> {
        self.unusual.iter().filter(|(_, bytes)| *bytes == 0).map(|(entry, _)| *entry)
    }

    /// The changes of the first `applied` entries, in order.
    pub(crate) fn changes_until(&self, applied: usize) -> &[(u32, SizeChange)] {
        &self.changes[..self.changes.partition_point(|(entry, _)| (*entry as usize) < applied)]
    }
}
