//! The allocator of one device, and `malloc`.

use std::collections::BTreeMap;

use super::block::{Arena, BlockId, PoolBlock, PoolBlockState};
use super::initial_ages::InitialAges;
use super::pool::PoolSet;
use super::request::{AllocParams, AllocatorEntry, DEFAULT_POOL, PendingFreeId, Request, ServedBy};
use super::size::{is_small_request, round_size, segment_size};
use super::stats::AllocatorStatistics;
use crate::allocator::conf::Settings;
use crate::allocator::device::{DeviceMemory, Reservation};
use crate::allocator::releases::{Behaviour, Rule};
use crate::allocator::trace_action::Action;
use crate::base::ids::{PoolId, StackId};

/// The allocator of one device.
#[derive(Debug, Clone, Default)]
pub struct CachingAllocator {
    /// The rules of the release that it follows.
    pub behaviour: Behaviour,
    /// The settings for the next request. Existing blocks keep their sizes if they change, as by
    /// `torch.cuda.memory._set_allocator_settings`.
    pub settings: Settings,
    /// `allowed_memory_maximum`: the most bytes that may be reserved.
    pub(super) allowed_memory_maximum: Option<u64>,
    pub(super) blocks: Arena,
    pub(super) pools: PoolSet,
    pub(super) expandable_segments: Vec<Reservation>,
    /// Pending blocks in the order in which they were freed.
    pub(super) pending: BTreeMap<PendingFreeId, BlockId>,
    pub(super) reserved_bytes: u64,
    pub(super) registration_counter: u32,
    pub(super) initial_ages: InitialAges,
    /// Statistics since the allocator was created.
    pub statistics: AllocatorStatistics,
    /// Trace entries, until the caller drops them.
    pub entries: Vec<AllocatorEntry>,
    /// How the last request was served.
    pub served_by: ServedBy,
    /// Why PyTorch's own behaviour is undefined from here on, if it is.
    pub undefined_behaviour: Option<&'static str>,
    pub(super) pending_frees: u64,
    /// Bytes that `garbage_collect_cached_blocks` has released so far.
    pub garbage_collected_bytes: u64,
}

impl CachingAllocator {
    /// An empty allocator. `limit` is the most bytes it may reserve (`set_per_process_memory_fraction`).
    pub fn new(behaviour: Behaviour, settings: Settings, limit: Option<u64>) -> Self {
        Self { behaviour, settings, allowed_memory_maximum: limit, ..Self::default() }
    }

    /// `MemPool(no_split=True)`: blocks of `pool` are never split.
    pub fn set_no_split(&mut self, pool: PoolId) {
        self.pools.get_mut(pool).no_split = true;
    }

    /// The segments of `pool` come from an allocator that the program supplied.
    pub fn set_custom_allocator(&mut self, pool: PoolId) {
        self.pools.get_mut(pool).has_custom_allocator = true;
    }

    /// Serves a request; `None` if memory is out. Memory that was mapped or released on the way stays so.
    pub fn malloc(&mut self, request: &Request<'_>, device: &mut dyn DeviceMemory) -> Option<BlockId> {
        self.complete_frees(request.finished, request.context);
        let size = round_size(request.size, &self.settings);
        let is_small = is_small_request(size);
        let params = AllocParams {
            free_list: self.pools.free_list(request.pool, request.stream, is_small),
            pool: request.pool,
            is_small,
            size,
            alloc_size: segment_size(size, &self.settings),
            is_expandable: self.uses_expandable_segments(request.pool),
            context: request.context,
        };
        self.served_by = ServedBy::Cached;
        let id = match self.get_free_block(&params) {
            Some(id) => id,
            None => self.alloc_from_device(&params, request, device)?,
        };
        Some(self.alloc_found_block(id, &params, request.size))
    }

    /// The fallbacks of `malloc` when no free block fits.
    #[cold]
    fn alloc_from_device(
        &mut self,
        params: &AllocParams,
        request: &Request<'_>,
        device: &mut dyn DeviceMemory,
    ) -> Option<BlockId> {
        if self.is_gc_enabled() {
            self.garbage_collect_cached_blocks(params.context, device);
        }
        self.served_by = ServedBy::Grown;
        if let Some(id) = self.alloc_block(params, device) {
            return Some(id);
        }
        if self.served_by == ServedBy::Rejected {
            return None;
        }
        self.served_by = ServedBy::GrownAfterRelease;
        if self.release_available_cached_blocks(params, device)
            && let Some(id) = self.alloc_block(params, device)
        {
            return Some(id);
        }
        if !request.is_capturing {
            self.served_by = ServedBy::GrownAfterRetry;
            let Request { wait_order, freeable, .. } = *request;
            self.release_cached_blocks(None, wait_order, freeable, params.context, device);
            self.statistics.num_alloc_retries += 1;
            if let Some(id) = self.alloc_block(params, device) {
                return Some(id);
            }
        }
        self.served_by = ServedBy::Failed;
        let Request { stream, pool, context, .. } = *request;
        let (addr, size) = (device.free_bytes(), params.size);
        self.entries.push(AllocatorEntry { action: Action::Oom, addr, size, stream, pool, context });
        self.statistics.num_ooms += 1;
        None
    }

    /// `torch.cuda.memory_snapshot()` writes a trace entry with the active bytes of the device, or of `pool` if
    /// that is a private one.
    pub fn snapshot(&mut self, pool: PoolId) {
        let active = if pool == DEFAULT_POOL {
            self.statistics.active_bytes.all.current
        } else {
            let active = self.blocks.ids().map(|id| &self.blocks[id]).filter(|block| {
                matches!(block.state, PoolBlockState::Allocated | PoolBlockState::Pending)
                    && self.pools.free_lists[block.free_list as usize].pool == pool
            });
            active.map(|b| b.size).sum()
        };
        self.entries.push(AllocatorEntry { action: Action::Snapshot, size: active, pool, ..AllocatorEntry::default() });
    }

    #[inline]
    pub(super) fn record_trace(&mut self, action: Action, block: &PoolBlock, size: u64, context: StackId) {
        let free_list = &self.pools.free_lists[block.free_list as usize];
        let (addr, stream, pool) = (block.addr, free_list.stream, free_list.pool);
        self.entries.push(AllocatorEntry { action, addr, size, stream, pool, context });
    }

    /// New memory from the device, as a block that is in no free list.
    fn alloc_block(&mut self, params: &AllocParams, device: &mut dyn DeviceMemory) -> Option<BlockId> {
        let after = self.reserved_bytes.saturating_add(params.alloc_size);
        if self.allowed_memory_maximum.is_some_and(|limit| after > limit) {
            return None;
        }
        if self.settings.throw_on_cudamalloc_oom && self.behaviour.has(Rule::ThrowsOnCudaMallocOom) {
            let total = device.total_bytes();
            if after > fraction_of(total, self.settings.per_process_memory_fraction) {
                self.statistics.num_oom_rejections += 1;
                self.served_by = ServedBy::Rejected;
                return None;
            }
        }
        let is_private = params.pool != DEFAULT_POOL;
        let id = if params.is_expandable && (!is_private || self.behaviour.has(Rule::ExpandablePrivatePools)) {
            self.try_allocate_expandable_block(params, device)?
        } else {
            let addr = device.allocate(params.alloc_size).ok()?;
            self.add_segment(addr, params.alloc_size, params.free_list, params.context)
        };
        if is_private {
            self.pools.get_mut(params.pool).cuda_malloc_count += 1;
        }
        Some(id)
    }

    /// A new segment, as one block that is in no free list yet.
    fn add_segment(&mut self, addr: u64, size: u64, free_list: u32, context: StackId) -> BlockId {
        let (pool, is_small) = self.pools.pool_and_size_class(free_list);
        self.reserved_bytes = self.reserved_bytes.saturating_add(size);
        let block = PoolBlock::new(addr, size, free_list, self.next_registration(), PoolBlockState::Free);
        let block = PoolBlock { segment_context: context, ..block };
        let id = self.blocks.insert(block);
        self.statistics.segment.increase(is_small, 1);
        self.statistics.increase_reserved(pool, is_small, size);
        if size >= self.settings.max_split_size {
            self.statistics.oversize_segments.increase(1);
        }
        self.statistics.num_device_alloc += 1;
        self.record_trace(Action::SegmentAlloc, &block, size, context);
        id
    }

    pub(super) fn next_registration(&mut self) -> u32 {
        let registration = self.registration_counter;
        self.registration_counter = registration.saturating_add(1);
        registration
    }
}

/// `fraction` of `total`, rounded down.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, as meant")]
pub(super) fn fraction_of(total: u64, fraction: f64) -> u64 {
    (total as f64 * fraction) as u64
}
