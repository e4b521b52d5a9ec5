//! Splitting a found block for a request, freeing it, and merging it with its neighbours.

use super::block::{BlockId, PoolBlock, PoolBlockState};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{AllocParams, PendingFreeId};
use super::size::should_split;
use crate::allocator::releases::TieBreak;
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId};

impl CachingAllocator {
    /// Frees a block. If other streams use it, it stays pending until [`CachingAllocator::complete_free`] is called
    /// with the returned id.
    pub fn free(&mut self, id: BlockId, is_used_elsewhere: bool, context: StackId) -> Option<PendingFreeId> {
        let block = self.blocks[id];
        let is_small = self.pools.free_lists[block.free_list as usize].is_small;
        self.statistics.allocation.decrease(is_small, 1);
        self.statistics.allocated_bytes.decrease(is_small, block.size);
        self.record_trace(Action::FreeRequested, &block, block.requested, context);
        if block.size >= self.settings.max_split_size {
            self.statistics.oversize_allocations.decrease(1);
        }
        if !is_used_elsewhere {
            self.free_block(id, context);
            return None;
        }
        Some(self.make_pending(id))
    }

    pub(super) fn make_pending(&mut self, id: BlockId) -> PendingFreeId {
        self.pending_frees += 1;
        let pending_id = PendingFreeId(self.pending_frees);
        self.blocks[id].state = PoolBlockState::Pending;
        self.pending.insert(pending_id, id);
        pending_id
    }

    /// The events of a pending block have completed. Does nothing if its free is complete already.
    pub fn complete_free(&mut self, pending_id: PendingFreeId, context: StackId) {
        if let Some(id) = self.pending.remove(&pending_id) {
            self.free_block(id, context);
        }
    }

    /// [`Self::complete_free`] for each of `frees`, in order.
    pub fn complete_frees(&mut self, frees: &[PendingFreeId], context: StackId) {
        for pending_id in frees {
            self.complete_free(*pending_id, context);
        }
    }

    pub(super) fn pool_of_pending(&self, pending_id: PendingFreeId) -> Option<PoolId> {
        let block = &self.blocks[*self.pending.get(&pending_id)?];
        Some(self.pools.free_lists[block.free_list as usize].pool)
    }

    /// Whether blocks other than those in `known` are pending.
    pub fn has_pending_other_than(&self, known: &[PendingFreeId]) -> bool {
        self.pending.keys().any(|pending_id| !known.contains(pending_id))
    }

    /// `free_block`: returns a block to its pool, merged with its free neighbours.
    pub(super) fn free_block(&mut self, id: BlockId, context: StackId) {
        let block = self.blocks[id];
        let is_small = self.pools.free_lists[block.free_list as usize].is_small;
        self.record_trace(Action::FreeCompleted, &block, block.requested, context);
        self.blocks[id].state = PoolBlockState::Free;
        let (mut count, mut bytes) = (0i64, 0i64);
        for neighbour in [block.prev, block.next] {
            let merged_bytes = self.try_merge_blocks(id, neighbour);
            if merged_bytes > 0 {
                count -= 1;
                bytes = bytes.saturating_sub(to_signed(merged_bytes));
            }
        }
        self.insert_free(id);
        let after = self.blocks[id];
        if after.is_split() {
            count += 1;
            bytes = bytes.saturating_add(to_signed(after.size));
        }
        let statistics = &mut self.statistics;
        if !after.is_expandable() {
            statistics.inactive_split.change(is_small, count);
            statistics.inactive_split_bytes.change(is_small, bytes);
        }
        statistics.active.decrease(is_small, 1);
        statistics.active_bytes.decrease(is_small, block.size);
        statistics.requested_bytes.decrease(is_small, block.requested);
    }

    /// `try_merge_blocks`: merges neighbour `from` into `into` if both have the same state. Returns the bytes that
    /// `into` gained.
    pub(super) fn try_merge_blocks(&mut self, into: BlockId, from: BlockId) -> u64 {
        if from == BlockId::NONE || self.blocks[from].state != self.blocks[into].state {
            return 0;
        }
        self.remove_from_free_list(from);
        let merged = self.blocks[from];
        let block = &mut self.blocks[into];
        if block.prev == from {
            block.addr = merged.addr;
            block.prev = merged.prev;
            block.segment_context = merged.segment_context;
        } else {
            block.next = merged.next;
        }
        block.size = block.size.saturating_add(merged.size);
        let (prev, next) = (block.prev, block.next);
        if let Some(prev) = prev.as_option() {
            self.blocks[prev].next = into;
        }
        if let Some(next) = next.as_option() {
            self.blocks[next].prev = into;
        }
        self.blocks.remove(from);
        merged.size
    }

    pub(super) fn should_split(&self, params: &AllocParams, remaining: u64) -> bool {
        should_split(params.size, remaining, params.is_small || params.is_expandable, &self.settings)
    }

    /// The registration of a block that is split off `original`.
    pub(super) fn split_registration(&mut self, original: &PoolBlock) -> u32 {
        match self.behaviour.tie_break() {
            TieBreak::OldestBlock => self.next_registration(),
            TieBreak::LowestAddress | TieBreak::OldestSegment => original.registration,
        }
    }

    /// `alloc_found_block`: splits the block if the rules say so, and allocates it.
    pub(super) fn alloc_found_block(&mut self, id: BlockId, params: &AllocParams, requested: u64) -> BlockId {
        let no_split = self.pools.pool_of(params.free_list).no_split;
        let remaining = self.blocks[id].size.saturating_sub(params.size);
        let split = !no_split && self.should_split(params, remaining);
        self.alloc_found_block_with_split(id, params, requested, split)
    }

    /// The same, where the caller decides whether to `split`.
    pub(super) fn alloc_found_block_with_split(
        &mut self,
        id: BlockId,
        params: &AllocParams,
        requested: u64,
        split: bool,
    ) -> BlockId {
        let block = self.blocks[id];
        let was_split = block.is_split();
        let remaining = block.size.saturating_sub(params.size);
        let allocated = if split {
            let front = self.split_front(id, params.size);
            self.insert_free(id);
            if !block.is_expandable() {
                if was_split {
                    self.statistics.inactive_split_bytes.decrease(params.is_small, params.size);
                } else {
                    self.statistics.inactive_split_bytes.increase(params.is_small, remaining);
                    self.statistics.inactive_split.increase(params.is_small, 1);
                }
            }
            front
        } else {
            if was_split && !block.is_expandable() {
                self.statistics.inactive_split_bytes.decrease(params.is_small, block.size);
                self.statistics.inactive_split.decrease(params.is_small, 1);
            }
            id
        };
        let block = &mut self.blocks[allocated];
        block.state = PoolBlockState::Allocated;
        block.requested = requested;
        block.context = params.context;
        let block = *block;
        self.record_trace(Action::Alloc, &block, requested, params.context);
        self.count_as_active(&block, params.is_small);
        allocated
    }

    pub(super) fn count_as_active(&mut self, block: &PoolBlock, is_small: bool) {
        let statistics = &mut self.statistics;
        if block.state == PoolBlockState::Allocated {
            statistics.allocation.increase(is_small, 1);
            statistics.allocated_bytes.increase(is_small, block.size);
            if block.size >= self.settings.max_split_size {
                statistics.oversize_allocations.increase(1);
            }
        }
        statistics.active.increase(is_small, 1);
        statistics.active_bytes.increase(is_small, block.size);
        statistics.requested_bytes.increase(is_small, block.requested);
    }

    /// Splits the first `size` bytes off as a new block; the old object keeps the remainder.
    pub(super) fn split_front(&mut self, id: BlockId, size: u64) -> BlockId {
        let original = self.blocks[id];
        let registration = self.split_registration(&original);
        let segment_context = StackId::default();
        let front = PoolBlock { size, requested: 0, next: id, registration, segment_context, ..original };
        let front = self.blocks.insert(front);
        if let Some(prev) = original.prev.as_option() {
            self.blocks[prev].next = front;
        }
        let rest = &mut self.blocks[id];
        rest.prev = front;
        rest.addr = original.addr.saturating_add(size);
        rest.size = original.size.saturating_sub(size);
        front
    }

    /// Shrinks a block to its first `size` bytes and makes a new one of the remainder.
    pub(super) fn split_back(&mut self, id: BlockId, size: u64, state: PoolBlockState) -> BlockId {
        let original = self.blocks[id];
        let registration = self.split_registration(&original);
        let back = self.blocks.insert(PoolBlock {
            addr: original.addr.saturating_add(size),
            size: original.size.saturating_sub(size),
            requested: 0,
            prev: id,
            registration,
            state,
            context: StackId::default(),
            segment_context: StackId::default(),
            ..original
        });
        if let Some(next) = original.next.as_option() {
            self.blocks[next].prev = back;
        }
        let rest = &mut self.blocks[id];
        rest.next = back;
        rest.size = size;
        back
    }

    pub(super) fn free_key(&self, id: BlockId) -> FreeKey {
        let block = &self.blocks[id];
        let registration = match self.behaviour.tie_break() {
            TieBreak::LowestAddress => 0,
            TieBreak::OldestBlock | TieBreak::OldestSegment => self.initial_ages.place(block.registration),
        };
        FreeKey { size: block.size, registration, addr: block.addr, id }
    }

    /// Puts a block in its free list, with age 0.
    pub(super) fn insert_free(&mut self, id: BlockId) {
        let key = self.free_key(id);
        let free_list = self.blocks[id].free_list;
        self.pools.insert(free_list, key, self.is_releasable(id));
        if self.blocks[id].is_expandable() {
            self.pools.free_lists[free_list as usize].unmapped.add_to_runs(&self.blocks[id]);
        }
        if self.allowed_memory_maximum.is_some() {
            let (pool, is_small) = self.pools.pool_and_size_class(free_list);
            self.blocks[id].gc_count_base = self.pools.block_pool_mut(pool, is_small).get_free_block_calls;
        }
    }

    /// Removes a free or unmapped block from its set.
    pub(super) fn remove_from_free_list(&mut self, id: BlockId) {
        let key = self.free_key(id);
        let block = &self.blocks[id];
        if block.state == PoolBlockState::Unmapped {
            self.pools.free_lists[block.free_list as usize].unmapped.remove(block);
        } else {
            self.pools.remove(block.free_list, &key, self.is_releasable(id));
        }
        let block = &self.blocks[id];
        if block.is_expandable() {
            self.pools.free_lists[block.free_list as usize].unmapped.cut_from_runs(block);
        }
    }
}

/// Saturates: only invalid recordings have blocks this large.
fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
