//! Blocks on their way to the program and back: splitting, freeing, merging.

use super::behaviour::TieBreak;
use super::block::{BlockId, PoolBlock, State};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::{Need, Ticket};
use super::size::leaves_a_block;
use crate::allocator::terms::Action;
use crate::base::ids::{PoolId, StackId};

impl CachingAllocator {
    /// The program gives a block back. Where `is_used_elsewhere`, by another stream, it stays pending
    /// until [`CachingAllocator::complete`], for which it gets a ticket.
    pub fn free(
        &mut self,
        id: BlockId,
        is_used_elsewhere: bool,
        context: StackId,
    ) -> Option<Ticket> {
        let block = self.blocks[id];
        let is_small = self.pools.free_lists[block.free_list as usize].is_small;
        self.statistics.allocation.decrease(is_small, 1);
        self.statistics.allocated_bytes.decrease(is_small, block.size);
        self.emit(Action::FreeRequested, &block, block.requested, context);
        if block.size >= self.settings.max_split_size {
            self.statistics.oversize_allocations.decrease(1);
        }
        if !is_used_elsewhere {
            self.free_block(id, context);
            return None;
        }
        Some(self.make_pending(id))
    }

    pub(super) fn make_pending(&mut self, id: BlockId) -> Ticket {
        self.frees += 1;
        let ticket = Ticket(self.frees);
        self.blocks[id].state = State::Pending;
        self.pending.insert(ticket, id);
        ticket
    }

    /// The other streams are done with a pending block; nothing happens if that is known already.
    pub fn complete(&mut self, ticket: Ticket, context: StackId) {
        if let Some(id) = self.pending.remove(&ticket) {
            self.free_block(id, context);
        }
    }

    /// The pool of a pending block.
    pub(super) fn pool_of_pending(&self, ticket: Ticket) -> Option<PoolId> {
        let block = &self.blocks[*self.pending.get(&ticket)?];
        Some(self.pools.free_lists[block.free_list as usize].pool)
    }

    /// Whether blocks other than `known` are pending.
    pub fn has_pending_besides(&self, known: &[Ticket]) -> bool {
        self.pending.keys().any(|ticket| !known.contains(ticket))
    }

    /// The block goes back to its pool, one with its free neighbours.
    pub(super) fn free_block(&mut self, id: BlockId, context: StackId) {
        let block = self.blocks[id];
        let is_small = self.pools.free_lists[block.free_list as usize].is_small;
        self.emit(Action::FreeCompleted, &block, block.requested, context);
        self.blocks[id].state = State::Free;
        let (mut count, mut bytes) = (0i64, 0i64);
        for neighbour in [block.prev, block.next] {
            let merged = self.merge(id, neighbour);
            if merged > 0 {
                count -= 1;
                bytes = bytes.saturating_sub(signed(merged));
            }
        }
        self.insert_free(id);
        let after = self.blocks[id];
        if after.is_split() {
            count += 1;
            bytes = bytes.saturating_add(signed(after.size));
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

    /// `into` swallows its neighbour `from` if both are free and alike; returns the bytes it gained.
    pub(super) fn merge(&mut self, into: BlockId, from: BlockId) -> u64 {
        if from == BlockId::NONE || self.blocks[from].state != self.blocks[into].state {
            return 0;
        }
        self.take_out(from);
        let gone = self.blocks[from];
        let block = &mut self.blocks[into];
        if block.prev == from {
            block.addr = gone.addr;
            block.prev = gone.prev;
            block.segment_context = gone.segment_context;
        } else {
            block.next = gone.next;
        }
        block.size = block.size.saturating_add(gone.size);
        let (prev, next) = (block.prev, block.next);
        if let Some(prev) = prev.some() {
            self.blocks[prev].next = into;
        }
        if let Some(next) = next.some() {
            self.blocks[next].prev = into;
        }
        self.blocks.remove(from);
        gone.size
    }

    pub(super) fn leaves_a_block(&self, need: &Need, rest: u64) -> bool {
        leaves_a_block(need.size, rest, need.is_small || need.is_expandable, &self.settings)
    }

    /// The number of a block that is made from a part of `whole`.
    pub(super) fn registration_of_part(&mut self, whole: &PoolBlock) -> u32 {
        match self.behaviour.tie_break {
            TieBreak::OldestBlock => self.next_registration(),
            TieBreak::LowestAddress | TieBreak::OldestSegment => whole.registration,
        }
    }

    /// Splits what is worth splitting and gives the rest to the program.
    pub(super) fn hand_out(&mut self, id: BlockId, need: &Need, requested: u64) -> BlockId {
        let whole = self.pools.owner(need.free_list).no_split;
        let rest = self.blocks[id].size.saturating_sub(need.size);
        let is_cut = !whole && self.leaves_a_block(need, rest);
        self.hand_out_cut(id, need, requested, is_cut)
    }

    /// The same, split if `is_cut`.
    pub(super) fn hand_out_cut(
        &mut self,
        id: BlockId,
        need: &Need,
        requested: u64,
        is_cut: bool,
    ) -> BlockId {
        let block = self.blocks[id];
        let was_split = block.is_split();
        let rest = block.size.saturating_sub(need.size);
        let given = if is_cut {
            let front = self.cut_front(id, need.size);
            self.insert_free(id);
            if !block.is_expandable() {
                if was_split {
                    self.statistics.inactive_split_bytes.decrease(need.is_small, need.size);
                } else {
                    self.statistics.inactive_split_bytes.increase(need.is_small, rest);
                    self.statistics.inactive_split.increase(need.is_small, 1);
                }
            }
            front
        } else {
            if was_split && !block.is_expandable() {
                self.statistics.inactive_split_bytes.decrease(need.is_small, block.size);
                self.statistics.inactive_split.decrease(need.is_small, 1);
            }
            id
        };
        let block = &mut self.blocks[given];
        block.state = State::Allocated;
        block.requested = requested;
        block.context = need.context;
        let block = *block;
        self.emit(Action::Alloc, &block, requested, need.context);
        self.count_as_active(&block, need.is_small);
        given
    }

    pub(super) fn count_as_active(&mut self, block: &PoolBlock, is_small: bool) {
        let statistics = &mut self.statistics;
        if block.state == State::Allocated {
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

    /// Cuts the first `size` bytes off as a new block; the old object keeps the rest.
    pub(super) fn cut_front(&mut self, id: BlockId, size: u64) -> BlockId {
        let whole = self.blocks[id];
        let registration = self.registration_of_part(&whole);
        let front = self.blocks.insert(PoolBlock {
            size,
            requested: 0,
            next: id,
            registration,
            segment_context: StackId::default(),
            ..whole
        });
        if let Some(prev) = whole.prev.some() {
            self.blocks[prev].next = front;
        }
        let rest = &mut self.blocks[id];
        rest.prev = front;
        rest.addr = whole.addr.saturating_add(size);
        rest.size = whole.size.saturating_sub(size);
        front
    }

    /// Leaves a block its first `size` bytes and makes a new one of the rest.
    pub(super) fn cut_back(&mut self, id: BlockId, size: u64, state: State) -> BlockId {
        let whole = self.blocks[id];
        let registration = self.registration_of_part(&whole);
        let back = self.blocks.insert(PoolBlock {
            addr: whole.addr.saturating_add(size),
            size: whole.size.saturating_sub(size),
            requested: 0,
            prev: id,
            registration,
            state,
            context: StackId::default(),
            segment_context: StackId::default(),
            ..whole
        });
        if let Some(next) = whole.next.some() {
            self.blocks[next].prev = back;
        }
        let rest = &mut self.blocks[id];
        rest.next = back;
        rest.size = size;
        back
    }

    pub(super) fn free_key(&self, id: BlockId) -> FreeKey {
        let block = &self.blocks[id];
        let registration = match self.behaviour.tie_break {
            TieBreak::LowestAddress => 0,
            TieBreak::OldestBlock | TieBreak::OldestSegment => block.registration,
        };
        FreeKey { size: block.size, registration, addr: block.addr, id }
    }

    /// Puts a block in its pool, its age 0.
    pub(super) fn insert_free(&mut self, id: BlockId) {
        let key = self.free_key(id);
        let free_list = self.blocks[id].free_list;
        self.pools.insert(free_list, key);
        if self.limit.is_some() {
            let (_, is_small) = self.pools.kind_of(free_list);
            self.blocks[id].since = self.pools.owner(free_list).half(is_small).searches;
        }
    }

    /// Takes a block out of the set it stands in.
    pub(super) fn take_out(&mut self, id: BlockId) {
        let key = self.free_key(id);
        let block = &self.blocks[id];
        let free_list = &mut self.pools.free_lists[block.free_list as usize];
        if block.state == State::Unmapped {
            free_list.unmapped.remove(block);
        } else {
            free_list.free.remove(&key);
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
