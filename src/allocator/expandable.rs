//! Expandable segments: reserved addresses that memory is mapped into, granule by granule.

use super::block::{BlockId, Chain, PoolBlock, State};
use super::caching::{CachingAllocator, fraction_of};
use super::request::{DEFAULT_POOL, Need};
use super::size::granule;
use crate::allocator::conf::Reserve;
use crate::allocator::device::DeviceMemory;
use crate::allocator::terms::Action;
use crate::base::ids::{StackId, row};

impl CachingAllocator {
    /// Finds room for the request in an expandable segment and maps what is missing. What was mapped
    /// stays mapped when the device gives out half-way.
    pub(super) fn try_expandable(
        &mut self,
        need: &Need,
        device: &mut dyn DeviceMemory,
    ) -> Option<BlockId> {
        let mut id = self.find_expandable(need, device)?;
        if self.blocks[id].state == State::Unmapped {
            let bytes = self.blocks[id].size.min(need.size);
            self.map_block(id, bytes, need.context, device)?;
        }
        while self.blocks[id].size < need.size {
            let next = self.blocks[id].next.some()?;
            let bytes = (need.size - self.blocks[id].size).min(self.blocks[next].size);
            self.map_block(next, bytes, need.context, device)?;
            id = next; // which has swallowed the block before it
        }
        self.take_out(id);
        Some(id)
    }

    /// The first run of free addresses, mapped or not, that is long enough; else a new reservation.
    fn find_expandable(&mut self, need: &Need, device: &mut dyn DeviceMemory) -> Option<BlockId> {
        let unmapped = &self.pools.free_lists[need.free_list as usize].unmapped;
        let empty = unmapped.first_empty(need.size);
        let before = empty.map_or(u64::MAX, |(addr, _)| addr);
        for hole in unmapped.holes.range(..before).map(|(_, hole)| hole) {
            let prev = self.blocks[*hole].prev;
            let is_usable =
                |id: BlockId| id.some().is_some_and(|id| self.blocks[id].is_allocatable());
            let start = if is_usable(prev) { prev } else { *hole };
            let (mut run, mut at) = (0u64, start);
            while is_usable(at) {
                run = run.saturating_add(self.blocks[at].size);
                if run >= need.size {
                    return Some(start);
                }
                at = self.blocks[at].next;
            }
        }
        if let Some((_, id)) = empty {
            return Some(id);
        }
        let granule = granule(need.is_small, &self.settings);
        let size = self.reservation(granule, device.total_bytes())?;
        let base = device.reserve(size, granule).ok()?;
        let registration = self.next_registration();
        if size < need.size && self.behaviour.reservation_must_fit {
            device.release(base, size);
            return None;
        }
        let chain = Chain { base, size, granule };
        Some(self.add_chain(chain, need.free_list, registration))
    }

    /// Bytes of addresses to reserve for a segment.
    fn reservation(&self, granule: u64, total: u64) -> Option<u64> {
        let default = total.saturating_add(total / 8);
        let bytes = match self.settings.expandable_segments_reserve {
            Some(reserve) if self.behaviour.reservation_must_fit => match reserve {
                Reserve::Bytes(bytes) => bytes.min(default),
                Reserve::Fraction(part) => fraction_of(total, part).min(default),
            },
            _ => default,
        };
        bytes.checked_next_multiple_of(granule)
    }

    /// A reservation, as one unmapped block.
    fn add_chain(&mut self, chain: Chain, free_list: u32, registration: u32) -> BlockId {
        let number = row(self.chains.len());
        self.chains.push(chain);
        let id = self.blocks.insert(PoolBlock {
            addr: chain.base,
            size: chain.size,
            requested: 0,
            since: 0,
            prev: BlockId::NONE,
            next: BlockId::NONE,
            free_list,
            registration,
            chain: Some(number),
            state: State::Unmapped,
            context: StackId::default(),
            segment_context: StackId::default(),
        });
        self.insert_unmapped(id);
        id
    }

    pub(super) fn insert_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools.free_lists[block.free_list as usize].unmapped.insert(id, block);
    }

    /// Maps the first `bytes` of an unmapped block, rounded up to granules.
    fn map_block(
        &mut self,
        id: BlockId,
        bytes: u64,
        context: StackId,
        device: &mut dyn DeviceMemory,
    ) -> Option<()> {
        let block = self.blocks[id];
        let granule = self.granule_of(&block);
        let size = bytes.checked_next_multiple_of(granule)?.min(block.size);
        device.map(block.addr, size).ok()?;
        self.take_out(id);
        self.blocks[id].state = State::Free;
        if size < block.size {
            let tail = self.cut_back(id, size, State::Unmapped);
            self.insert_unmapped(tail);
        }
        self.merge(id, self.blocks[id].prev);
        self.merge(id, self.blocks[id].next);
        self.insert_free(id);
        let (pool, is_small) = self.pools.kind_of(block.free_list);
        self.reserved = self.reserved.saturating_add(size);
        self.statistics.reserve(pool, is_small, size);
        self.statistics.num_device_alloc += 1;
        self.emit(Action::SegmentMap, &block, size, context);
        let merged = &mut self.blocks[id];
        if merged.prev == BlockId::NONE && merged.segment_context == StackId::default() {
            merged.segment_context = context;
        }
        Some(())
    }

    fn granule_of(&self, block: &PoolBlock) -> u64 {
        let chain = block.chain.and_then(|number| self.chains.get(number as usize));
        chain.map_or(1, |chain| chain.granule).max(1)
    }

    /// The addresses of the granules that lie wholly in a block.
    pub(super) fn whole_granules(&self, id: BlockId) -> Option<(u64, u64)> {
        let block = &self.blocks[id];
        let chain = self.chains.get(block.chain? as usize)?;
        let start = block.addr.checked_sub(chain.base)?.checked_next_multiple_of(chain.granule)?;
        let end = (block.end() - chain.base) / chain.granule * chain.granule;
        (start < end).then(|| (chain.base + start, chain.base + end))
    }

    /// Takes the memory of a free block's whole granules away.
    pub(super) fn unmap_block(
        &mut self,
        id: BlockId,
        context: StackId,
        device: &mut dyn DeviceMemory,
    ) {
        let Some((start, end)) = self.whole_granules(id) else { return };
        let block = self.blocks[id];
        device.unmap(start, end - start);
        self.take_out(id);
        if block.addr < start {
            let head = self.cut_front(id, start - block.addr);
            self.blocks[head].context = StackId::default();
            self.insert_free(head);
        }
        if end < block.end() {
            let tail = self.cut_back(id, end - start, State::Free);
            self.insert_free(tail);
        }
        self.blocks[id].state = State::Unmapped;
        let hole = self.blocks[id];
        self.merge(id, hole.prev);
        self.merge(id, self.blocks[id].next);
        self.insert_unmapped(id);
        let (pool, is_small) = self.pools.kind_of(block.free_list);
        self.reserved = self.reserved.saturating_sub(hole.size);
        self.statistics.give_back(pool, is_small, hole.size);
        if pool != DEFAULT_POOL && self.behaviour.unmap_counts_for_pool {
            let counter = &mut self.pools.get_mut(pool).device_allocations;
            *counter -= 1;
            if *counter < 0 {
                self.is_undefined(
                    "PyTorch counts an expandable private pool's memory once per request when it \
                     is mapped but once per range when it is unmapped, and its own check of that \
                     count fails here",
                );
            }
        }
        self.statistics.num_device_free += 1;
        let cause = if context == StackId::default() { block.segment_context } else { context };
        self.emit(Action::SegmentUnmap, &hole, hole.size, cause);
    }

    /// Gives the reservation back when nothing is left in it.
    pub(super) fn drop_empty_chain(&mut self, id: BlockId, device: &mut dyn DeviceMemory) {
        let block = self.blocks[id];
        if block.is_split() || block.state != State::Unmapped {
            return;
        }
        if let Some(chain) = block.chain.and_then(|number| self.chains.get(number as usize)) {
            device.release(chain.base, chain.size);
        }
        self.take_out(id);
        self.blocks.remove(id);
    }
}
