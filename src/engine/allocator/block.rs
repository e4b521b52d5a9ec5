//! Blocks: the pieces of segments, kept in an arena and linked to their neighbours.

use std::ops::{Index, IndexMut};

use crate::base::ids::{StackId, to_u32};

/// A block of one [`super::CachingAllocator`]. The id is valid from `malloc` until the block is back in its
/// pool; after that it may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u32);

impl BlockId {
    pub(super) const NONE: Self = Self(u32::MAX);
    /// Sorts before every other id.
    pub(super) const ZERO: Self = Self(0);

    pub(super) fn as_option(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolBlockState {
    /// In its pool, or just taken out of it.
    Free,
    /// The program holds it.
    Allocated,
    /// Freed by the program, but other streams still use it.
    Pending,
    /// Addresses of an expandable segment with no memory mapped into them.
    Unmapped,
    /// An unused row of the arena.
    Vacant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PoolBlock {
    pub(super) addr: u64,
    pub(super) size: u64,
    /// The last request served from this block; never cleared, so stale in a free block.
    pub(super) requested: u64,
    /// `get_free_block_calls` of its pool when the block became free; its age is counted from here.
    pub(super) gc_count_base: u64,
    pub(super) prev: BlockId,
    pub(super) next: BlockId,
    pub(super) free_list: u32,
    /// `registration_counter`: the age of its segment or block, which breaks ties (see [`super::TieBreak`]).
    pub(super) registration: u32,
    /// Index of the expandable segment it is part of.
    pub(super) expandable_segment: Option<u32>,
    pub(super) state: PoolBlockState,
    /// Where it was allocated.
    pub(super) context: StackId,
    /// Where its segment was allocated. Only the first block of a segment keeps it.
    pub(super) segment_context: StackId,
}

impl PoolBlock {
    /// A block without neighbours that has served no request.
    pub(super) fn new(addr: u64, size: u64, free_list: u32, registration: u32, state: PoolBlockState) -> Self {
        Self {
            addr,
            size,
            requested: 0,
            gc_count_base: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            free_list,
            registration,
            expandable_segment: None,
            state,
            context: StackId::default(),
            segment_context: StackId::default(),
        }
    }

    /// Whether it shares its segment with other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }

    pub(super) fn is_expandable(&self) -> bool {
        self.expandable_segment.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.addr.saturating_add(self.size)
    }

    /// Whether an expandable allocation may use it, mapped or not.
    pub(super) fn is_allocatable(&self) -> bool {
        matches!(self.state, PoolBlockState::Free | PoolBlockState::Unmapped)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Arena {
    blocks: Vec<PoolBlock>,
    vacant: Vec<BlockId>,
}

impl Arena {
    pub(super) fn insert(&mut self, block: PoolBlock) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self[id] = block;
            return id;
        }
        let id = BlockId(to_u32(self.blocks.len()));
        self.blocks.push(block);
        id
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        self[id].state = PoolBlockState::Vacant;
        self.vacant.push(id);
    }

    /// Every block, in no meaningful order.
    pub(super) fn ids(&self) -> impl Iterator<Item = BlockId> {
        let ids = (0..self.blocks.len()).map(|index| BlockId(to_u32(index)));
        ids.filter(|id| self[*id].state != PoolBlockState::Vacant)
    }
}

// Ids come only from this arena, and vacant rows are kept, so every id is in range.
impl Index<BlockId> for Arena {
    type Output = PoolBlock;

    #[inline]
    fn index(&self, id: BlockId) -> &PoolBlock {
        &self.blocks[id.0 as usize]
    }
}

impl IndexMut<BlockId> for Arena {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut PoolBlock {
        &mut self.blocks[id.0 as usize]
    }
}
