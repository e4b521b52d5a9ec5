//! `malloc` and `free`, in PyTorch's order.

use std::collections::BTreeMap;

use super::behaviour::{Behaviour, TieBreak, UseOnOom};
use super::block::{Arena, Block, BlockId, State};
use super::expandable::Chain;
use super::pool::{FreeKey, Pools};
use super::size::{is_small_request, leaves_a_block, round_size, segment_size};
use super::stats::Statistics;
use crate::conf::Settings;
use crate::device::DeviceMemory;
use crate::entry::Action;
use crate::ids::{PoolId, StackId};

/// The default pool.
pub(super) const DEFAULT_POOL: PoolId = PoolId(0);

/// A line of the trace that the allocator writes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Address; free bytes of the device for [`Action::Oom`].
    pub addr: u64,
    /// Bytes: asked for (alloc, free), or of the memory (segments).
    pub size: u64,
    /// The block's stream.
    pub stream: u64,
    /// The block's pool.
    pub pool: PoolId,
    /// The stack that caused it.
    pub context: StackId,
}

/// A pending free: a block that waits for other streams. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What a program asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Bytes.
    pub size: u64,
    /// The current stream's raw handle.
    pub stream: u64,
    /// The pool that serves it.
    pub pool: PoolId,
    /// Where in the program.
    pub context: StackId,
    /// Pending blocks whose work on other streams is done by now, in the order in which it is noticed.
    pub finished: &'a [Ticket],
    /// The order in which other pending blocks come back if everything has to be waited for; those
    /// not named follow in the order in which they were freed.
    pub wait_order: &'a [Ticket],
    /// Pools whose last user is gone: their free memory can be given back too.
    pub freeable: &'a [PoolId],
    /// In a CUDA graph capture nothing is waited for and nothing is given back.
    pub is_capturing: bool,
}

/// A request in the allocator's own terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub(super) home: u32,
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    pub(super) stream: u64,
    /// Rounded bytes.
    pub(super) size: u64,
    /// Bytes of a segment for it.
    pub(super) segment: u64,
    /// Whether expandable segments serve it.
    pub(super) is_expandable: bool,
    pub(super) context: StackId,
}

/// How the last request was served: for explaining a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Course {
    /// From a free block.
    #[default]
    Cached,
    /// By a new segment or newly mapped memory, at once.
    Grown,
    /// The same after cached segments of the requested size or more were given back.
    GrownAfterRelease,
    /// The same after everything free was given back.
    GrownAfterRetry,
    /// From a pool lent for emergencies.
    Lent,
    /// Not at all.
    Failed,
    /// Refused because of `throw_on_cudamalloc_oom`.
    Rejected,
}

/// The allocator of one device.
#[derive(Debug, Clone)]
pub struct CachingAllocator {
    pub(super) behaviour: Behaviour,
    pub(super) settings: Settings,
    /// `allowed_maximum`: the most that may be reserved.
    pub(super) limit: Option<u64>,
    pub(super) blocks: Arena,
    pub(super) pools: Pools,
    pub(super) chains: Vec<Chain>,
    /// Pending blocks by when they were freed.
    pub(super) pending: BTreeMap<Ticket, BlockId>,
    pub(super) reserved: u64,
    pub(super) registrations: u32,
    /// Registrations below this are of memory that was taken over: their order is a guess.
    pub(super) adopted: u32,
    pub(super) lent: Vec<PoolId>,
    pub(super) statistics: Statistics,
    pub(super) entries: Vec<Entry>,
    course: Course,
    undefined: Option<&'static str>,
    frees: u64,
    collected: u64,
}

impl CachingAllocator {
    /// An allocator that holds nothing. `limit` is the most it may reserve
    /// (`set_per_process_memory_fraction`), in bytes.
    pub fn new(behaviour: Behaviour, settings: Settings, limit: Option<u64>) -> Self {
        Self {
            behaviour,
            settings,
            limit,
            blocks: Arena::default(),
            pools: Pools::default(),
            chains: Vec::new(),
            pending: BTreeMap::new(),
            reserved: 0,
            registrations: 0,
            adopted: 0,
            lent: Vec::new(),
            statistics: Statistics::default(),
            entries: Vec::new(),
            course: Course::default(),
            undefined: None,
            frees: 0,
            collected: 0,
        }
    }

    /// What was done since [`CachingAllocator::clear_entries`].
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Forgets the entries.
    pub fn clear_entries(&mut self) {
        self.entries.clear();
    }

    /// The figures so far.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The settings in effect.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How the last request was served.
    pub fn course(&self) -> Course {
        self.course
    }

    /// Bytes that garbage collection has given back so far.
    pub fn collected_bytes(&self) -> u64 {
        self.collected
    }

    /// Why PyTorch's own behaviour is undefined from here on, if it came to that.
    pub fn undefined(&self) -> Option<&'static str> {
        self.undefined
    }

    pub(super) fn is_undefined(&mut self, why: &'static str) {
        self.undefined.get_or_insert(why);
    }

    pub(super) fn collect(&mut self, bytes: u64) {
        self.collected += bytes;
    }

    /// Blocks of `pool` are handed out whole from now on.
    pub fn set_no_split(&mut self, pool: PoolId) {
        self.pools.get_mut(pool).no_split = true;
    }

    /// The memory of `pool` comes from an allocator of the program's own: never from expandable segments.
    pub fn set_custom_allocator(&mut self, pool: PoolId) {
        self.pools.get_mut(pool).has_custom_allocator = true;
    }

    /// `pool` may serve the default pool's requests that fail otherwise.
    pub fn set_use_on_oom(&mut self, pool: PoolId) {
        if !self.lent.contains(&pool) {
            self.lent.push(pool);
        }
    }

    /// Serves a request; `None` when memory is out. What was done on the way stays done.
    pub fn malloc(
        &mut self,
        request: &Request<'_>,
        device: &mut dyn DeviceMemory,
    ) -> Option<BlockId> {
        for ticket in request.finished {
            self.complete(*ticket, request.context);
        }
        let size = round_size(request.size, &self.settings);
        let is_small = is_small_request(size);
        let need = Need {
            home: self.pools.home(request.pool, request.stream, is_small),
            pool: request.pool,
            is_small,
            stream: request.stream,
            size,
            segment: segment_size(size, &self.settings),
            is_expandable: self.is_expandable(request.pool),
            context: request.context,
        };
        self.course = Course::Cached;
        if let Some(id) = self.get_free_block(&need, need.is_expandable) {
            return Some(self.hand_out(id, &need, request.size));
        }
        let (id, need) = self.grow(need, request, device)?;
        Some(self.hand_out(id, &need, request.size))
    }

    /// The ladder when no free block fits.
    #[cold]
    fn grow(
        &mut self,
        need: Need,
        request: &Request<'_>,
        device: &mut dyn DeviceMemory,
    ) -> Option<(BlockId, Need)> {
        if self.collects_garbage() {
            self.garbage_collect(need.context, device);
        }
        self.course = Course::Grown;
        if let Some(id) = self.alloc_block(&need, device) {
            return Some((id, need));
        }
        if self.course == Course::Rejected {
            return None;
        }
        if self.behaviour.use_on_oom == UseOnOom::BeforeReclaiming
            && let Some(found) = self.borrow_block(&need, false)
        {
            return Some(found);
        }
        self.course = Course::GrownAfterRelease;
        if self.release_available(&need, device)
            && let Some(id) = self.alloc_block(&need, device)
        {
            return Some((id, need));
        }
        if !request.is_capturing {
            self.course = Course::GrownAfterRetry;
            let Request { wait_order, freeable, .. } = *request;
            self.release_cached(None, wait_order, freeable, need.context, device);
            self.statistics.num_alloc_retries += 1;
            if let Some(id) = self.alloc_block(&need, device) {
                return Some((id, need));
            }
        }
        if self.behaviour.use_on_oom == UseOnOom::Last
            && let Some(found) = self.borrow_block(&need, self.settings.expandable_segments)
        {
            return Some(found);
        }
        self.course = Course::Failed;
        self.entries.push(Entry {
            action: Action::Oom,
            addr: device.free_bytes(),
            size: need.size,
            stream: need.stream,
            pool: need.pool,
            context: need.context,
        });
        self.statistics.num_ooms += 1;
        None
    }

    /// The program gives a block back. Where `is_used_elsewhere`, by another stream, it stays pending
    /// until [`CachingAllocator::complete`], for which it gets a ticket.
    pub fn free(
        &mut self,
        id: BlockId,
        is_used_elsewhere: bool,
        context: StackId,
    ) -> Option<Ticket> {
        let block = self.blocks[id];
        let is_small = self.pools.homes[block.home as usize].is_small;
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
        Some(self.pools.homes[block.home as usize].pool)
    }

    /// Whether blocks other than `known` are pending.
    pub fn has_pending_besides(&self, known: &[Ticket]) -> bool {
        self.pending.keys().any(|ticket| !known.contains(ticket))
    }

    /// Whether a free block would serve the request now.
    pub fn has_fit(&mut self, request: &Request<'_>) -> bool {
        self.fit(request).is_some()
    }

    /// The free block that would serve the request now.
    pub(super) fn fit(&mut self, request: &Request<'_>) -> Option<FreeKey> {
        let size = round_size(request.size, &self.settings);
        let home = self.pools.home(request.pool, request.stream, is_small_request(size));
        self.candidate(home, size, self.is_expandable(request.pool))
    }

    /// `torch.cuda.memory_snapshot()` leaves a line in the trace: the active bytes, of one private pool
    /// if it was asked for one.
    pub fn snapshot(&mut self, pool: PoolId) {
        let active = if pool == DEFAULT_POOL {
            self.statistics.active_bytes.all.current
        } else {
            let is_active = |block: &&Block| {
                matches!(block.state, State::Allocated | State::Pending)
                    && self.pools.homes[block.home as usize].pool == pool
            };
            self.blocks.ids().map(|id| &self.blocks[id]).filter(is_active).map(|b| b.size).sum()
        };
        self.entries.push(Entry {
            action: Action::Snapshot,
            addr: 0,
            size: active,
            stream: 0,
            pool,
            context: StackId::default(),
        });
    }

    /// Lets a line through that is no work of the allocator.
    pub fn note(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    #[inline]
    pub(super) fn emit(&mut self, action: Action, block: &Block, size: u64, context: StackId) {
        let home = &self.pools.homes[block.home as usize];
        self.entries.push(Entry {
            action,
            addr: block.addr,
            size,
            stream: home.stream,
            pool: home.pool,
            context,
        });
    }

    /// The ages of free blocks count, and are looked at when memory has to grow.
    fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// The best free block, taken out of its pool. Only one candidate is looked at: where the size
    /// rules refuse it, a later one that they would accept is not tried.
    fn get_free_block(&mut self, need: &Need, uses_expandable: bool) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools.get_mut(need.pool).half_mut(need.is_small).searches += 1;
        }
        let found = self.candidate(need.home, need.size, uses_expandable)?;
        self.pools.homes[need.home as usize].free.remove(&found);
        Some(found.id)
    }

    #[inline]
    fn candidate(&self, home: u32, size: u64, uses_expandable: bool) -> Option<FreeKey> {
        let home = &self.pools.homes[home as usize];
        let mut fitting = home.free.range(FreeKey::at_least(size)..);
        let mut found = *fitting.next()?;
        if self.blocks[found.id].is_expandable() {
            if uses_expandable {
                // The block that would be left with the least room to grow into.
                let room = |key: &FreeKey| {
                    let next = self.blocks[key.id].next.some().map(|id| &self.blocks[id]);
                    let hole = next.filter(|b| b.state == State::Unmapped).map_or(0, |b| b.size);
                    key.size.saturating_add(hole)
                };
                while self.blocks[found.id].is_expandable()
                    && let Some(next) = fitting.next()
                    && room(next) < room(&found)
                {
                    found = *next;
                }
            } else {
                found = *fitting.find(|key| !self.blocks[key.id].is_expandable())?;
            }
        }
        self.accepts(found.size, size).then_some(found)
    }

    /// Whether the rules for blocks that are never split let a request have a block.
    #[inline]
    fn accepts(&self, block: u64, rounded: u64) -> bool {
        let limit = self.settings.max_split_size;
        if rounded < limit {
            block < limit
        } else {
            block < rounded.saturating_add(self.settings.max_non_split_rounding)
        }
    }

    /// Whether the rule for expandable memory applies to requests of `pool`.
    fn is_expandable(&self, pool: PoolId) -> bool {
        self.settings.expandable_segments
            && (pool == DEFAULT_POOL
                || self.pools.get(pool).is_none_or(|pool| !pool.has_custom_allocator))
    }

    /// A block of a lent pool for a request of the default pool.
    fn borrow_block(&mut self, need: &Need, uses_expandable: bool) -> Option<(BlockId, Need)> {
        if need.pool != DEFAULT_POOL {
            return None;
        }
        for pool in self.lent.clone() {
            let home = self.pools.home(pool, need.stream, need.is_small);
            let lent = Need { home, pool, ..*need };
            if let Some(id) = self.get_free_block(&lent, uses_expandable) {
                self.course = Course::Lent;
                return Some((id, lent));
            }
        }
        None
    }

    /// New memory from the device; it goes to no free set.
    fn alloc_block(&mut self, need: &Need, device: &mut dyn DeviceMemory) -> Option<BlockId> {
        let after = self.reserved.saturating_add(need.segment);
        if self.limit.is_some_and(|limit| after > limit) {
            return None;
        }
        if self.settings.throw_on_cudamalloc_oom && self.behaviour.can_reject {
            let total = device.total_bytes();
            if after > fraction_of(total, self.settings.per_process_memory_fraction) {
                self.statistics.num_oom_rejections += 1;
                self.course = Course::Rejected;
                return None;
            }
        }
        let is_private = need.pool != DEFAULT_POOL;
        if need.is_expandable && (!is_private || self.behaviour.expandable_private_pools) {
            let id = self.try_expandable(need, device)?;
            if is_private {
                self.pools.get_mut(need.pool).device_allocations += 1;
            }
            return Some(id);
        }
        let addr = device.allocate(need.segment).ok()?;
        if is_private {
            self.pools.get_mut(need.pool).device_allocations += 1;
        }
        Some(self.add_segment(addr, need.segment, need.home, need.context))
    }

    /// A segment from the device, as one block that is in no free set yet.
    pub(super) fn add_segment(
        &mut self,
        addr: u64,
        size: u64,
        home: u32,
        context: StackId,
    ) -> BlockId {
        let is_small = self.pools.homes[home as usize].is_small;
        self.reserved = self.reserved.saturating_add(size);
        let registration = self.next_registration();
        let id = self.blocks.insert(Block {
            addr,
            size,
            requested: 0,
            since: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            home,
            registration,
            chain: None,
            state: State::Free,
            context: StackId::default(),
            segment_context: context,
        });
        self.statistics.segment.increase(is_small, 1);
        self.statistics.reserved_bytes.increase(is_small, size);
        if size >= self.settings.max_split_size {
            self.statistics.oversize_segments.increase(1);
        }
        self.statistics.num_device_alloc += 1;
        let block = self.blocks[id];
        self.emit(Action::SegmentAlloc, &block, size, context);
        id
    }

    pub(super) fn next_registration(&mut self) -> u32 {
        let registration = self.registrations;
        self.registrations = registration.saturating_add(1);
        registration
    }

    fn leaves_a_block(&self, need: &Need, rest: u64) -> bool {
        leaves_a_block(need.size, rest, need.is_small || need.is_expandable, &self.settings)
    }

    /// The number of a block that is made from a part of `whole`.
    pub(super) fn registration_of_part(&mut self, whole: &Block) -> u32 {
        match self.behaviour.tie_break {
            TieBreak::OldestBlock => self.next_registration(),
            TieBreak::LowestAddress | TieBreak::OldestSegment => whole.registration,
        }
    }

    /// Splits what is worth splitting and gives the rest to the program.
    fn hand_out(&mut self, id: BlockId, need: &Need, requested: u64) -> BlockId {
        let block = self.blocks[id];
        let was_split = block.is_split();
        let whole = self.pools.get(need.pool).is_some_and(|pool| pool.no_split);
        let rest = block.size.saturating_sub(need.size);
        let given = if !whole && self.leaves_a_block(need, rest) {
            let front = self.split(id, need.size);
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

    pub(super) fn count_as_active(&mut self, block: &Block, is_small: bool) {
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

    /// Cuts the first `size` bytes off as a new block; the old object becomes the remainder and goes
    /// back to its pool.
    fn split(&mut self, id: BlockId, size: u64) -> BlockId {
        let rest = self.blocks[id];
        let registration = self.registration_of_part(&rest);
        let front = self.blocks.insert(Block {
            size,
            requested: 0,
            next: id,
            registration,
            segment_context: StackId::default(),
            ..rest
        });
        if let Some(prev) = rest.prev.some() {
            self.blocks[prev].next = front;
        }
        let block = &mut self.blocks[id];
        block.prev = front;
        block.addr = rest.addr.saturating_add(size);
        block.size = rest.size.saturating_sub(size);
        self.insert_free(id);
        front
    }

    fn free_key(&self, id: BlockId) -> FreeKey {
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
        let block = &mut self.blocks[id];
        let home = &mut self.pools.homes[block.home as usize];
        home.free.insert(key);
        let (pool, is_small) = (home.pool, home.is_small);
        if self.limit.is_some() {
            self.blocks[id].since =
                self.pools.get(pool).map_or(0, |pool| pool.half(is_small).searches);
        }
    }

    /// Takes a block out of the set it stands in.
    pub(super) fn take_out(&mut self, id: BlockId) {
        let key = self.free_key(id);
        let block = &self.blocks[id];
        let home = &mut self.pools.homes[block.home as usize];
        if block.state == State::Unmapped {
            home.unmapped.remove(&block.addr);
        } else {
            home.free.remove(&key);
        }
    }

    /// The block goes back to its pool, one with its free neighbours.
    fn free_block(&mut self, id: BlockId, context: StackId) {
        let block = self.blocks[id];
        let is_small = self.pools.homes[block.home as usize].is_small;
        self.emit(Action::FreeCompleted, &block, block.requested, context);
        self.blocks[id].state = State::Free;
        let (mut count, mut bytes) = (0i64, 0i64);
        for neighbour in [block.prev, block.next] {
            let merged = self.merge(id, neighbour);
            if merged > 0 {
                count -= 1;
                bytes -= signed(merged);
            }
        }
        self.insert_free(id);
        let after = self.blocks[id];
        if after.is_split() {
            count += 1;
            bytes += signed(after.size);
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
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// `fraction` of `total`, rounded down.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
pub(super) fn fraction_of(total: u64, fraction: f64) -> u64 {
    (total as f64 * fraction) as u64
}
