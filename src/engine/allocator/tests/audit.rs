//! A second account of an allocator's memory, compared with its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocator::block::{BlockId, PoolBlock, PoolBlockState};
use crate::allocator::device::{DeviceMemory, FreeRange, OutOfMemory, SimulatedDevice};
use crate::allocator::releases::TieBreak;
use crate::allocator::trace_action::Action;
use crate::allocator::{AllocatorEntry, CachingAllocator, Request, Stat, StatByPool, round_size};
use crate::base::ids::to_u32;

/// A device that checks its calls and refuses some of them.
#[derive(Debug)]
pub(super) struct CheckingDevice {
    pub(super) inner: SimulatedDevice,
    refused: Vec<usize>,
    growths: usize,
    segments: BTreeMap<u64, u64>,
    reservations: BTreeMap<u64, u64>,
    mapped: RangeSet,
}

impl CheckingDevice {
    pub(super) fn new(capacity: u64, refused: Vec<usize>) -> Self {
        Self {
            inner: SimulatedDevice::new(0, capacity),
            refused,
            growths: 0,
            segments: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mapped: RangeSet::default(),
        }
    }

    fn refuses_next(&mut self) -> bool {
        self.growths += 1;
        self.refused.contains(&(self.growths - 1))
    }
}

impl DeviceMemory for CheckingDevice {
    fn allocate(&mut self, size: u64) -> Result<u64, OutOfMemory> {
        if self.refuses_next() {
            return Err(OutOfMemory);
        }
        let addr = self.inner.allocate(size)?;
        self.segments.insert(addr, size);
        Ok(addr)
    }

    fn free(&mut self, addr: u64, size: u64) {
        assert_eq!(self.segments.remove(&addr), Some(size), "freed what is no segment");
        self.inner.free(addr, size);
    }

    fn reserve(&mut self, size: u64, granule: u64) -> Result<u64, OutOfMemory> {
        let base = self.inner.reserve(size, granule)?;
        self.reservations.insert(base, size);
        Ok(base)
    }

    fn release(&mut self, addr: u64, size: u64) {
        assert_eq!(self.reservations.remove(&addr), Some(size), "released what is not reserved");
        assert!(!self.mapped.overlaps(addr, size), "memory is still mapped there");
        self.inner.release(addr, size);
    }

    fn map(&mut self, addr: u64, size: u64) -> Result<(), OutOfMemory> {
        let (base, reserved) = self.reservations.range(..=addr).next_back().expect("reserved");
        assert!(addr + size <= base + reserved, "mapped past the reservation");
        if self.refuses_next() {
            return Err(OutOfMemory);
        }
        self.inner.map(addr, size)?;
        self.mapped.add(addr, size);
        Ok(())
    }

    fn unmap(&mut self, addr: u64, size: u64) {
        self.mapped.remove(addr, size);
        self.inner.unmap(addr, size);
    }

    fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    fn total_bytes(&self) -> u64 {
        self.inner.total_bytes()
    }
}

/// Disjoint ranges, start to end.
#[derive(Debug, Default)]
pub(super) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    fn overlaps(&self, addr: u64, size: u64) -> bool {
        self.0.range(..addr + size).next_back().is_some_and(|(_, end)| *end > addr)
    }

    fn add(&mut self, addr: u64, size: u64) {
        assert!(size > 0 && !self.overlaps(addr, size), "taken twice: {addr:#x} {size}");
        let (mut from, mut to) = (addr, addr + size);
        if let Some((&before, &end)) = self.0.range(..addr).next_back()
            && end == addr
        {
            from = before;
        }
        to = self.0.remove(&to).unwrap_or(to);
        self.0.insert(from, to);
    }

    fn remove(&mut self, addr: u64, size: u64) {
        let (&from, &to) = self.0.range(..=addr).next_back().expect("nothing is there");
        assert!(addr + size <= to, "only a part is there");
        self.0.remove(&from);
        if from < addr {
            self.0.insert(from, addr);
        }
        if addr + size < to {
            self.0.insert(addr + size, to);
        }
    }
}

/// The state that follows from the trace entries so far.
#[derive(Debug, Default)]
pub(super) struct Audit {
    memory: RangeSet,
    /// Segments by address: size, and the number of segments before.
    segments: BTreeMap<u64, (u64, usize)>,
    made: usize,
    /// Requested bytes by address.
    live: BTreeMap<u64, u64>,
    pending: BTreeMap<u64, u64>,
    counts: BTreeMap<&'static str, u64>,
}

impl Audit {
    /// Applies entries and checks that each is possible.
    pub(super) fn apply(&mut self, entries: &[AllocatorEntry]) {
        for AllocatorEntry { action, addr, size, .. } in entries.iter().copied() {
            match action {
                Action::Alloc => {
                    assert!(self.memory.overlaps(addr, 1), "no memory at {addr:#x}");
                    assert!(!self.pending.contains_key(&addr), "{addr:#x} still waits");
                    assert_eq!(self.live.insert(addr, size), None, "{addr:#x} given out twice");
                }
                Action::FreeRequested => {
                    assert_eq!(self.live.remove(&addr), Some(size), "freed: {addr:#x}");
                    self.pending.insert(addr, size);
                }
                Action::FreeCompleted => {
                    assert_eq!(self.pending.remove(&addr), Some(size), "completed: {addr:#x}");
                }
                Action::SegmentAlloc => {
                    self.memory.add(addr, size);
                    self.segments.insert(addr, (size, self.made));
                    self.made += 1;
                }
                Action::SegmentFree => {
                    let segment = self.segments.remove(&addr).expect("freed what is no segment");
                    assert_eq!(segment.0, size);
                    self.memory.remove(addr, size);
                }
                Action::SegmentMap => self.memory.add(addr, size),
                Action::SegmentUnmap => self.memory.remove(addr, size),
                Action::Oom | Action::Snapshot | Action::Other => {}
            }
            let word = match action {
                Action::SegmentAlloc | Action::SegmentMap => "device_alloc",
                Action::SegmentFree | Action::SegmentUnmap => "device_free",
                Action::Oom => "oom",
                _ => continue,
            };
            *self.counts.entry(word).or_default() += 1;
        }
    }

    fn count(&self, word: &str) -> u64 {
        self.counts.get(word).copied().unwrap_or(0)
    }

    pub(super) fn check(&self, allocator: &CachingAllocator, device: &CheckingDevice) {
        let ids: Vec<BlockId> = allocator.blocks.ids().collect();
        let blocks = &allocator.blocks;
        let (mut covered, mut mapped) = (BTreeMap::new(), RangeSet::default());
        for &id in &ids {
            check_links(allocator, id);
            if blocks[id].state != PoolBlockState::Unmapped {
                mapped.add(blocks[id].addr, blocks[id].size);
            }
            if blocks[id].prev == BlockId::NONE {
                let (mut bytes, mut at) = (0, id);
                while let Some(here) = at.as_option() {
                    bytes += blocks[here].size;
                    at = blocks[here].next;
                }
                let (chain, addr) = (blocks[id].expandable_segment, blocks[id].addr);
                if let Some(number) = chain {
                    let chain = allocator.expandable_segments[number as usize];
                    assert_eq!((addr, bytes), (chain.base, chain.size), "a reservation has gaps");
                }
                covered.insert((chain.is_some(), addr), bytes);
            }
        }
        let segments = self.segments.iter().map(|(addr, (size, _))| ((false, *addr), *size));
        let chains = device.reservations.iter().map(|(base, size)| ((true, *base), *size));
        assert_eq!(covered, segments.chain(chains).collect(), "segments and their blocks");
        assert_eq!(mapped.0, self.memory.0, "blocks and the memory of the trace");
        check_sets(allocator, &ids);
        self.check_statistics(allocator, &ids, device);
        for (state, expected) in [(PoolBlockState::Allocated, &self.live), (PoolBlockState::Pending, &self.pending)] {
            let found = ids_in(allocator, &ids, state).map(|id| (blocks[id].addr, blocks[id].requested));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), *expected, "{state:?}");
        }
    }

    fn check_statistics(&self, allocator: &CachingAllocator, ids: &[BlockId], device: &CheckingDevice) {
        let limit = allocator.settings.max_split_size;
        let s = &allocator.statistics;
        let mut expected = ExpectedStatistics::default();
        for block in ids.iter().map(|id| &allocator.blocks[*id]) {
            expected.count(block, usize::from(allocator.pools.free_lists[block.free_list as usize].is_small));
        }
        check_by_pool(&s.allocation, expected.allocation, "allocation");
        check_by_pool(&s.allocated_bytes, expected.allocated_bytes, "allocated_bytes");
        check_by_pool(&s.active, expected.active, "active");
        check_by_pool(&s.active_bytes, expected.active_bytes, "active_bytes");
        check_by_pool(&s.requested_bytes, expected.requested_bytes, "requested_bytes");
        check_by_pool(&s.reserved_bytes, expected.reserved_bytes, "reserved_bytes");
        check_by_pool(&s.segment, expected.segment, "segment");
        check_by_pool(&s.inactive_split, expected.inactive_split, "inactive_split");
        check_by_pool(&s.inactive_split_bytes, expected.inactive_split_bytes, "inactive_split_bytes");
        let allocated = ids_in(allocator, ids, PoolBlockState::Allocated);
        let oversize = allocated.filter(|id| allocator.blocks[*id].size >= limit).count() as u64;
        assert_eq!(s.oversize_allocations.current, oversize);
        let oversize = self.segments.values().filter(|(size, _)| *size >= limit).count() as u64;
        assert_eq!(s.oversize_segments.current, oversize);
        check_stat(&s.oversize_allocations, "oversize_allocations");
        check_stat(&s.oversize_segments, "oversize_segments");
        assert_eq!(s.num_device_alloc, self.count("device_alloc"));
        assert_eq!(s.num_device_free, self.count("device_free"));
        assert_eq!(s.num_ooms, self.count("oom"));
        assert!(s.num_alloc_retries <= s.num_sync_all_streams);
        assert_eq!(allocator.reserved_bytes, s.reserved_bytes.all.current);
        let used = device.inner.total_bytes() - device.inner.free_bytes();
        assert_eq!(used, allocator.reserved_bytes, "what the device has given");
        if let Some(limit) = allocator.allowed_memory_maximum {
            // PyTorch compares the size of a segment with the limit, but maps whole granules.
            let slack = if allocator.settings.expandable_segments { u64::MAX / 2 } else { 0 };
            assert!(allocator.reserved_bytes <= limit + slack);
        }
    }

    /// The address of the free block that must serve the request, derived only from the blocks and the order of
    /// segments. `None` with expandable segments, whose rules are less simple.
    #[allow(clippy::option_option, reason = "unknown, or known to be none")]
    pub(super) fn expected_free_block(
        &self,
        allocator: &CachingAllocator,
        request: &Request<'_>,
    ) -> Option<Option<u64>> {
        let settings = &allocator.settings;
        if settings.expandable_segments {
            return None;
        }
        let size = round_size(request.size, settings);
        let mut fitting: Vec<(u64, usize, u64)> = allocator
            .blocks
            .ids()
            .map(|id| &allocator.blocks[id])
            .filter(|block| {
                let free_list = &allocator.pools.free_lists[block.free_list as usize];
                block.state == PoolBlockState::Free
                    && block.size >= size
                    && (free_list.pool, free_list.stream) == (request.pool, request.stream)
                    && free_list.is_small == (size <= 1 << 20)
            })
            .map(|block| {
                let order = match allocator.behaviour.tie_break() {
                    TieBreak::LowestAddress => 0,
                    TieBreak::OldestBlock => block.registration as usize,
                    TieBreak::OldestSegment => self.segments.range(..=block.addr).next_back().unwrap().1.1,
                };
                (block.size, order, block.addr)
            })
            .collect();
        fitting.sort_unstable();
        let first = fitting.first().filter(|(block, ..)| {
            let limit = settings.max_split_size;
            let most = if size < limit { limit } else { size + settings.max_non_split_rounding };
            *block < most
        });
        Some(first.map(|(_, _, addr)| *addr))
    }
}

fn check_stat(stat: &Stat, what: &str) {
    assert_eq!(stat.allocated - stat.freed, stat.current, "{what}");
    assert!(stat.peak >= stat.current && stat.peak <= stat.allocated, "{what}");
}

/// Checks a block and its neighbours.
fn check_links(allocator: &CachingAllocator, id: BlockId) {
    let block = &allocator.blocks[id];
    assert!(block.size > 0 && block.addr.checked_add(block.size).is_some());
    if let Some(prev) = block.prev.as_option() {
        assert_eq!(allocator.blocks[prev].next, id, "a neighbour that is none");
    }
    let Some(next) = block.next.as_option() else { return };
    let next = &allocator.blocks[next];
    assert_eq!((next.prev, next.addr), (id, block.end()), "a neighbour that is none");
    assert_eq!(
        (next.free_list, next.expandable_segment),
        (block.free_list, block.expandable_segment),
        "neighbours of two segments"
    );
    let is_same_state = block.state == next.state;
    assert!(!(is_same_state && matches!(block.state, PoolBlockState::Free | PoolBlockState::Unmapped)), "not merged");
}

/// Checks that the sets hold exactly the free and unmapped blocks, under their keys, and that every pending block
/// has one id.
fn check_sets(allocator: &CachingAllocator, ids: &[BlockId]) {
    let (mut free, mut holes) = (BTreeSet::new(), BTreeSet::new());
    for (number, free_list) in allocator.pools.free_lists.iter().enumerate() {
        for key in free_list.free.iter() {
            assert_eq!(*key, allocator.free_key(key.id), "a key out of date");
            assert_eq!(allocator.blocks[key.id].free_list as usize, number);
            assert!(free.insert(key.id));
            let block_pool = allocator.pools.block_pool(free_list.pool, free_list.is_small).unwrap();
            let is_known = block_pool.filled.get(&free_list.stream) == Some(&to_u32(number));
            assert!(is_known || !allocator.is_releasable(key.id), "would be forgotten");
        }
        let releasable = free_list.free.iter().filter(|key| allocator.is_releasable(key.id));
        assert!(free_list.releasable.iter().eq(releasable), "unsplit blocks, and blocks with whole granules");
        check_runs(allocator, to_u32(number), ids);
        for (addr, id) in free_list.unmapped.iter() {
            assert_eq!(*addr, allocator.blocks[*id].addr, "a key out of date");
            assert_eq!(allocator.blocks[*id].free_list as usize, number);
            assert!(holes.insert(*id));
        }
    }
    let waiting: BTreeSet<BlockId> = allocator.pending.values().copied().collect();
    assert_eq!(waiting.len(), allocator.pending.len(), "one block for each pending free");
    for (state, expected) in
        [(PoolBlockState::Free, free), (PoolBlockState::Unmapped, holes), (PoolBlockState::Pending, waiting)]
    {
        assert_eq!(ids_in(allocator, ids, state).collect::<BTreeSet<_>>(), expected, "{state:?}");
    }
}

/// Those of `ids` whose blocks are in `state`.
fn ids_in(allocator: &CachingAllocator, ids: &[BlockId], state: PoolBlockState) -> impl Iterator<Item = BlockId> {
    ids.iter().copied().filter(move |id| allocator.blocks[*id].state == state)
}

/// The statistics that follow from the blocks: of large pools and of small ones.
#[derive(Default)]
struct ExpectedStatistics {
    allocation: [u64; 2],
    allocated_bytes: [u64; 2],
    active: [u64; 2],
    active_bytes: [u64; 2],
    requested_bytes: [u64; 2],
    reserved_bytes: [u64; 2],
    segment: [u64; 2],
    inactive_split: [u64; 2],
    inactive_split_bytes: [u64; 2],
}

impl ExpectedStatistics {
    fn count(&mut self, block: &PoolBlock, half: usize) {
        if block.state == PoolBlockState::Allocated {
            self.allocation[half] += 1;
            self.allocated_bytes[half] += block.size;
        }
        if matches!(block.state, PoolBlockState::Allocated | PoolBlockState::Pending) {
            self.active[half] += 1;
            self.active_bytes[half] += block.size;
            self.requested_bytes[half] += block.requested;
        }
        if block.state != PoolBlockState::Unmapped {
            self.reserved_bytes[half] += block.size;
        }
        if !block.is_expandable() && block.prev == BlockId::NONE {
            self.segment[half] += 1;
        }
        if block.state == PoolBlockState::Free && !block.is_expandable() && block.is_split() {
            self.inactive_split[half] += 1;
            self.inactive_split_bytes[half] += block.size;
        }
    }
}

fn check_by_pool(stat: &StatByPool, [large, small]: [u64; 2], what: &str) {
    assert_eq!(stat.all.current, large + small, "{what}");
    assert_eq!(stat.small_pool.current, small, "{what} of small pools");
    assert_eq!(stat.large_pool.current, large, "{what} of large pools");
    for one in [&stat.all, &stat.small_pool, &stat.large_pool] {
        check_stat(one, what);
    }
    assert_eq!(stat.all.freed, stat.small_pool.freed + stat.large_pool.freed, "{what}");
    assert!(stat.all.peak <= stat.small_pool.peak + stat.large_pool.peak, "{what}");
}

/// Checks that the runs of free addresses, if they are listed, are those that the links between blocks show.
fn check_runs(allocator: &CachingAllocator, number: u32, ids: &[BlockId]) {
    let unmapped = &allocator.pools.free_lists[number as usize].unmapped;
    let Some(runs) = &unmapped.runs else { return };
    let listed = ids.iter().map(|id| (*id, &allocator.blocks[*id]));
    let firsts = listed.filter(|(id, block)| {
        let is_first = is_free(allocator, *id) && !is_free(allocator, block.prev);
        let has_memory = block.is_split() || block.state == PoolBlockState::Free;
        block.free_list == number && block.is_expandable() && is_first && has_memory
    });
    let expected = firsts.map(|(mut id, first)| {
        let mut run = FreeRange { start: first.addr, end: 0, is_usable: false };
        while is_free(allocator, id) {
            let block = &allocator.blocks[id];
            run.end = block.end();
            run.is_usable |= block.state == PoolBlockState::Unmapped;
            id = block.next;
        }
        (run.start, run)
    });
    let expected: BTreeMap<u64, FreeRange> = expected.collect();
    let runs = runs.iter().filter(|run| expected.contains_key(&run.start)).copied();
    assert_eq!(runs.collect::<Vec<_>>(), expected.values().copied().collect::<Vec<_>>(), "runs of free addresses");
}

fn is_free(allocator: &CachingAllocator, id: BlockId) -> bool {
    id.as_option().is_some_and(|id| allocator.blocks[id].is_allocatable())
}
