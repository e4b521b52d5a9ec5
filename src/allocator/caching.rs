//! The allocator of one device, and `malloc` in PyTorch's order.

use std::collections::BTreeMap;

use super::behaviour::{Behaviour, UseOnOom};
use super::block::{Arena, BlockId, Chain, PoolBlock, State};
use super::pool::PoolSet;
use super::request::{DEFAULT_POOL, Entry, Need, Request, Service, Ticket};
use super::size::{is_small_request, round_size, segment_size};
use super::stats::AllocatorStatistics;
use crate::allocator::conf::Settings;
use crate::allocator::device::DeviceMemory;
use crate::allocator::terms::Action;
use crate::base::ids::{PoolId, StackId};

/// The allocator of one device.
#[derive(Debug, Clone)]
pub struct CachingAllocator {
    pub(super) behaviour: Behaviour,
    pub(super) settings: Settings,
    /// `allowed_maximum`: the most that may be reserved.
    pub(super) limit: Option<u64>,
    pub(super) blocks: Arena,
    pub(super) pools: PoolSet,
    pub(super) chains: Vec<Chain>,
    /// Pending blocks by when they were freed.
    pub(super) pending: BTreeMap<Ticket, BlockId>,
    pub(super) reserved: u64,
    pub(super) registrations: u32,
    /// Registrations below this are of memory that was taken over: their order is a guess.
    pub(super) adopted: u32,
    pub(super) lent: Vec<PoolId>,
    pub(super) statistics: AllocatorStatistics,
    pub(super) entries: Vec<Entry>,
    pub(super) service: Service,
    undefined: Option<&'static str>,
    pub(super) frees: u64,
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
            pools: PoolSet::default(),
            chains: Vec::new(),
            pending: BTreeMap::new(),
            reserved: 0,
            registrations: 0,
            adopted: 0,
            lent: Vec::new(),
            statistics: AllocatorStatistics::default(),
            entries: Vec::new(),
            service: Service::default(),
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
    pub fn statistics(&self) -> &AllocatorStatistics {
        &self.statistics
    }

    /// `settings` are in effect from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The settings in effect.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The rules of the release that is followed.
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// How the last request was served.
    pub fn service(&self) -> Service {
        self.service
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
            free_list: self.pools.free_list(request.pool, request.stream, is_small),
            pool: request.pool,
            is_small,
            stream: request.stream,
            size,
            segment: segment_size(size, &self.settings),
            is_expandable: self.is_expandable(request.pool),
            context: request.context,
        };
        self.service = Service::Cached;
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
        self.service = Service::Grown;
        if let Some(id) = self.alloc_block(&need, device) {
            return Some((id, need));
        }
        if self.service == Service::Rejected {
            return None;
        }
        if self.behaviour.use_on_oom == UseOnOom::BeforeReclaiming
            && let Some(found) = self.borrow_block(&need, false)
        {
            return Some(found);
        }
        self.service = Service::GrownAfterRelease;
        if self.release_available(&need, device)
            && let Some(id) = self.alloc_block(&need, device)
        {
            return Some((id, need));
        }
        if !request.is_capturing {
            self.service = Service::GrownAfterRetry;
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
        self.service = Service::Failed;
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

    /// `torch.cuda.memory_snapshot()` leaves a line in the trace: the active bytes, of one private pool
    /// if it was asked for one.
    pub fn snapshot(&mut self, pool: PoolId) {
        let active = if pool == DEFAULT_POOL {
            self.statistics.active_bytes.all.current
        } else {
            let is_active = |block: &&PoolBlock| {
                matches!(block.state, State::Allocated | State::Pending)
                    && self.pools.free_lists[block.free_list as usize].pool == pool
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
    pub(super) fn emit(&mut self, action: Action, block: &PoolBlock, size: u64, context: StackId) {
        let free_list = &self.pools.free_lists[block.free_list as usize];
        self.entries.push(Entry {
            action,
            addr: block.addr,
            size,
            stream: free_list.stream,
            pool: free_list.pool,
            context,
        });
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
                self.service = Service::Rejected;
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
        Some(self.add_segment(addr, need.segment, need.free_list, need.context))
    }

    /// A segment from the device, as one block that is in no free set yet.
    pub(super) fn add_segment(
        &mut self,
        addr: u64,
        size: u64,
        free_list: u32,
        context: StackId,
    ) -> BlockId {
        let (pool, is_small) = self.pools.kind_of(free_list);
        self.reserved = self.reserved.saturating_add(size);
        let registration = self.next_registration();
        let id = self.blocks.insert(PoolBlock {
            addr,
            size,
            requested: 0,
            since: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            free_list,
            registration,
            chain: None,
            state: State::Free,
            context: StackId::default(),
            segment_context: context,
        });
        self.statistics.segment.increase(is_small, 1);
        self.statistics.reserve(pool, is_small, size);
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
}

/// `fraction` of `total`, rounded down.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
pub(super) fn fraction_of(total: u64, fraction: f64) -> u64 {
    (total as f64 * fraction) as u64
}
