//! Blocks: the pieces of segments, in an arena, each knowing its neighbours.

use std::ops::{Index, IndexMut};

use crate::base::ids::{StackId, row};

/// A block of one [`super::CachingAllocator`]. It names the same block from `malloc` until the block is
/// back in its pool, and is handed out again after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u32);

impl BlockId {
    /// No block.
    pub(super) const NONE: Self = Self(u32::MAX);
    /// Sorts before every other.
    pub(super) const ZERO: Self = Self(0);

    pub(super) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In its pool, or just taken out of it.
    Free,
    /// In the program's hands.
    Allocated,
    /// Freed by the program, not by the other streams that use it.
    Pending,
    /// Addresses with no memory behind them.
    Unmapped,
    /// A row of the arena that holds no block.
    Vacant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct PoolBlock {
    pub(super) addr: u64,
    pub(super) size: u64,
    /// What was asked for last; never cleared, so stale in a free block.
    pub(super) requested: u64,
    /// The pool's count of searches when it became free.
    pub(super) since: u64,
    pub(super) prev: BlockId,
    pub(super) next: BlockId,
    pub(super) free_list: u32,
    /// Which segment it is of, in order of their making.
    pub(super) registration: u32,
    /// The expandable segment it is part of.
    pub(super) chain: Option<u32>,
    pub(super) state: State,
    /// Where it was allocated.
    pub(super) context: StackId,
    /// Where its segment was allocated, if this object still knows.
    pub(super) segment_context: StackId,
}

impl PoolBlock {
    /// Shares its segment with other blocks.
    pub(super) fn is_split(&self) -> bool {
        self.prev != BlockId::NONE || self.next != BlockId::NONE
    }

    pub(super) fn is_expandable(&self) -> bool {
        self.chain.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.addr.saturating_add(self.size)
    }

    /// Free for use, mapped or not.
    pub(super) fn is_allocatable(&self) -> bool {
        matches!(self.state, State::Free | State::Unmapped)
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
        let id = BlockId(row(self.blocks.len()));
        self.blocks.push(block);
        id
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        self[id].state = State::Vacant;
        self.vacant.push(id);
    }

    /// Every block, in no meaningful order.
    pub(super) fn ids(&self) -> impl Iterator<Item = BlockId> {
        (0..self.blocks.len())
            .map(|index| BlockId(row(index)))
            .filter(|id| self[*id].state != State::Vacant)
    }
}

// Ids come from this arena alone and a vacant row is still a row: they are always in range.
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

/// A range of addresses that is reserved for an expandable segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    pub(super) base: u64,
    pub(super) size: u64,
    pub(super) granule: u64,
}
