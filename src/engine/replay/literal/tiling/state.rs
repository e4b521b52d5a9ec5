//! The tiles, and the effect of each entry on them.

use std::collections::BTreeSet;

use super::super::totals::{StreamPool, Totals};
use super::free::{FreeKindSums, Tracking};
use super::tile::{NONE, Tile};
use crate::allocator::conf::Settings;
use crate::allocator::{BlockView, DeviceRange, block_size, is_small_request, round_size};
use crate::base::ids::{PoolId, StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::snapshot::BlockState;

/// All blocks of one device.
#[derive(Debug, Default)]
pub struct Tiling {
    pub(super) settings: Settings,
    pub(super) tiles: Vec<Tile>,
    pub(super) free_ids: Vec<u32>,
    pub(super) by_addr: SeededMap<u64, u32>,
    pub(super) addresses: Option<BTreeSet<u64>>,
    pub(super) stream_pools: Vec<StreamPool>,
    pub(super) stream_pool_ids: SeededMap<(PoolId, u64, bool), u32>,
    pub(super) free_kinds: Option<FreeKindSums>,
    /// The changes of the last entry, if tracked.
    changes: Option<Vec<Change>>,
    /// Private pools that never split blocks (`MemPool(no_split=True)`).
    pub(in crate::replay::literal) no_split: Vec<PoolId>,
    pub(super) totals: Totals,
    /// See [`Tiling::allocated_bytes`].
    allocated_bytes: u64,
    /// See [`Tiling::damaged_blocks`].
    damaged_blocks: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// The active block at this address was added, changed or removed.
    Block(u64),
    /// Memory was taken from the device.
    Added(Tile),
    /// Memory was returned to the device: address and size.
    Removed(u64, u64),
}

/// An entry contradicts the state before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contradiction;

type ApplyResult = Result<(), Contradiction>;

impl Tiling {
    pub(crate) fn new(settings: Settings, tracking: Tracking) -> Self {
        Self {
            free_kinds: (tracking == Tracking::FreeKinds).then(|| FreeKindSums::new(&settings)),
            changes: (tracking == Tracking::Changes).then(Vec::new),
            settings,
            ..Self::default()
        }
    }

    pub(crate) fn set_settings(&mut self, settings: &Settings) {
        self.settings = settings.clone();
    }

    #[inline]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Size of the block that the last `alloc` allocated; 0 if it contradicts the state and there is no block.
    #[inline]
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Addresses of the live blocks that the last entry shortened or removed, because it contradicts the state.
    #[inline]
    pub(crate) fn damaged_blocks(&self) -> &[u64] {
        &self.damaged_blocks
    }

    /// The changes of the last entry, in order; empty unless tracked ([`super::Tracking::Changes`]). A block may occur
    /// several times.
    pub(crate) fn changes(&self) -> &[Change] {
        self.changes.as_deref().unwrap_or_default() // not tracked
    }

    /// Forgets the changes of the last entry.
    #[inline]
    pub(crate) fn start_entry(&mut self) {
        self.damaged_blocks.clear();
        if let Some(changes) = &mut self.changes {
            changes.clear();
        }
    }

    #[inline]
    fn record_change(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    #[inline]
    pub(super) fn record_tile_change(&mut self, tile: &Tile) {
        if tile.state != BlockState::Inactive {
            self.record_change(Change::Block(tile.addr));
        }
    }

    /// In order of appearance.
    pub fn stream_pools(&self) -> &[StreamPool] {
        &self.stream_pools
    }

    /// Size of the largest free block that can serve a request of this pool, stream and size class; 0 if there is none.
    /// Iterates over all blocks.
    pub fn largest_free(&self, pool: PoolId, stream: u64, is_small: bool) -> u64 {
        let Some(&stream_pool) = self.stream_pool_ids.get(&(pool, stream, is_small)) else {
            return 0; // never had a block
        };
        let free = self.tiles().filter(|tile| tile.stream_pool == stream_pool && tile.state == BlockState::Inactive);
        free.map(|tile| tile.size).max().unwrap_or(0) // no free block
    }

    /// Every active block in no order: address, size, requested bytes, state and stack.
    pub fn active_blocks(&self) -> impl Iterator<Item = BlockView> + '_ {
        self.tiles().filter(|tile| tile.state != BlockState::Inactive).map(|tile| {
            let Tile { addr, size, requested, state, stack: context, .. } = *tile;
            BlockView { addr, size, requested, state, context }
        })
    }

    /// Every tile, in an order that depends on the trace alone.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = &Tile> {
        (0..).zip(&self.tiles).filter(move |(id, tile)| self.find(tile.addr) == Some(*id)).map(|(_, tile)| tile)
    }

    /// Size and state of the block that starts at `addr`.
    pub fn block_at(&self, addr: u64) -> Option<(u64, BlockState)> {
        self.tile_at(addr).map(|tile| (tile.size, tile.state))
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.by_addr.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_addr.is_empty()
    }

    /// `None` for [`NONE`].
    pub(super) fn tile(&self, id: u32) -> Option<&Tile> {
        self.tiles.get(id as usize)
    }

    pub(super) fn find(&self, addr: u64) -> Option<u32> {
        self.by_addr.get(&addr).copied()
    }

    /// The tile that starts at `addr`.
    pub(crate) fn tile_at(&self, addr: u64) -> Option<&Tile> {
        self.tile(self.find(addr)?)
    }

    pub(super) fn tile_containing(&mut self, addr: u64) -> Option<u32> {
        let ordered = self.addresses.get_or_insert_with(|| self.by_addr.keys().copied().collect());
        let start = *ordered.range(..=addr).next_back()?;
        let id = self.find(start)?;
        (addr < self.tiles[id as usize].end()).then_some(id)
    }

    fn stream_pool(&mut self, pool: PoolId, stream: u64, is_small: bool) -> u32 {
        *self.stream_pool_ids.entry((pool, stream, is_small)).or_insert_with(|| {
            self.stream_pools.push(StreamPool { pool, stream, is_small, free: 0, pending: 0 });
            to_u32(self.stream_pools.len() - 1)
        })
    }

    /// Adds or subtracts tile `id` in the totals, except for the reserved bytes.
    #[expect(clippy::inline_always, reason = "inlined, it has no branches on `is_added`")]
    #[inline(always)]
    fn update_sums(&mut self, id: u32, is_added: bool) {
        let t = self.tiles[id as usize];
        self.record_tile_change(&t);
        let stream_pool = &mut self.stream_pools[t.stream_pool as usize];
        match t.state {
            BlockState::Inactive => update_sum(&mut stream_pool.free, t.size, is_added),
            BlockState::ActiveAllocated => {
                update_sum(&mut self.totals.allocated, t.size, is_added);
                update_sum(&mut self.totals.active, t.size, is_added);
                update_sum(&mut self.totals.requested, t.requested, is_added);
            }
            BlockState::ActivePendingFree => {
                update_sum(&mut stream_pool.pending, t.size, is_added);
                update_sum(&mut self.totals.active, t.size, is_added);
                update_sum(&mut self.totals.requested, t.requested, is_added);
            }
        }
    }

    /// Changes tile `id` and the totals.
    fn set_state(&mut self, id: u32, state: BlockState, requested: u64, stack: StackId) {
        self.update_sums(id, false);
        let tile = &mut self.tiles[id as usize];
        (tile.state, tile.requested, tile.stack) = (state, requested.min(tile.size), stack);
        self.update_sums(id, true);
        self.recount(id);
    }

    /// Adds `tile` to the totals and to the others.
    fn insert(&mut self, tile: Tile) -> u32 {
        let id = self.link(tile);
        self.totals.reserved += tile.size; // `insert_range` checks the sum
        self.update_sums(id, true);
        id
    }

    /// Adds `tile`, whose bytes the totals have already.
    pub(super) fn link(&mut self, tile: Tile) -> u32 {
        let id = if let Some(id) = self.free_ids.pop() {
            self.tiles[id as usize] = tile;
            id
        } else {
            self.tiles.push(tile);
            to_u32(self.tiles.len() - 1)
        };
        self.by_addr.insert(tile.addr, id);
        if let Some(ordered) = &mut self.addresses {
            ordered.insert(tile.addr);
        }
        if let Some(next) = self.tiles.get_mut(tile.next as usize) {
            next.prev = id;
        }
        if let Some(prev) = self.tiles.get_mut(tile.prev as usize) {
            prev.next = id;
        }
        self.recount_added(id);
        id
    }

    /// Removes tile `id` from the totals and from the others. With `join`, its neighbours become adjacent; otherwise they
    /// become the ends of two ranges.
    fn remove(&mut self, id: u32, join: bool) {
        self.totals.reserved -= self.tiles[id as usize].size;
        self.update_sums(id, false);
        self.unlink(id, join);
    }

    /// Removes tile `id`, whose bytes stay in the totals.
    pub(super) fn unlink(&mut self, id: u32, join: bool) {
        let tile = self.tiles[id as usize];
        self.by_addr.remove(&tile.addr);
        if let Some(ordered) = &mut self.addresses {
            ordered.remove(&tile.addr);
        }
        if let Some(next) = self.tiles.get_mut(tile.next as usize) {
            next.prev = if join { tile.prev } else { NONE };
        }
        if let Some(prev) = self.tiles.get_mut(tile.prev as usize) {
            prev.next = if join { tile.next } else { NONE };
        }
        self.free_ids.push(id);
        self.recount_removed(id, &tile);
    }

    /// Adds a free tile for memory taken from the device.
    pub(crate) fn insert_range(&mut self, range: DeviceRange) -> Result<u32, Contradiction> {
        if range.size == 0
            || range.addr.checked_add(range.size).is_none()
            || self.totals.reserved.checked_add(range.size).is_none()
            || self.find(range.addr).is_some()
        {
            return Err(Contradiction);
        }
        let stream_pool = self.stream_pool(range.pool, range.stream, range.is_small);
        let (mut prev, mut next) = (NONE, NONE);
        if range.is_expandable {
            prev = range.addr.checked_sub(1).and_then(|a| self.tile_containing(a)).unwrap_or(NONE);
            prev = match self.tile(prev) {
                Some(t) if t.joins(stream_pool) && t.end() == range.addr => prev,
                Some(t) if t.end() > range.addr => return Err(Contradiction),
                _ => NONE,
            };
            next = self.find(range.addr + range.size).unwrap_or(NONE);
            if !self.tile(next).is_some_and(|t| t.joins(stream_pool) && t.prev == NONE) {
                next = NONE;
            }
        }
        let tile = Tile {
            addr: range.addr,
            size: range.size,
            requested: 0,
            prev,
            next,
            stream_pool,
            state: BlockState::Inactive,
            is_expandable: range.is_expandable,
            stack: StackId::default(),
        };
        self.record_change(Change::Added(tile));
        Ok(self.insert(tile))
    }

    /// Applies `segment_alloc` or `segment_map`.
    pub(crate) fn add_range(&mut self, range: DeviceRange) -> ApplyResult {
        let id = self.insert_range(range)?;
        if range.is_expandable {
            self.merge(id);
        }
        Ok(())
    }

    /// Applies `segment_free`: removes the whole segment at `addr`.
    pub(crate) fn free_segment(&mut self, addr: u64) -> ApplyResult {
        let mut id = self.find(addr).ok_or(Contradiction)?;
        let first = self.tiles[id as usize];
        if first.prev != NONE {
            return Err(Contradiction);
        }
        let is_free = first.next == NONE && first.state == BlockState::Inactive;
        let mut size = 0_u64;
        while let Some(&tile) = self.tile(id) {
            if tile.state == BlockState::ActiveAllocated {
                self.damaged_blocks.push(tile.addr);
            }
            self.remove(id, false);
            size = size.saturating_add(tile.size);
            id = tile.next;
        }
        self.record_change(Change::Removed(addr, size));
        if is_free { Ok(()) } else { Err(Contradiction) }
    }

    /// Applies `segment_unmap`: removes free memory, which may be a part of a tile.
    pub(crate) fn unmap(&mut self, addr: u64, size: u64) -> ApplyResult {
        let id = self.split_out(addr, size)?;
        self.remove(id, false);
        self.record_change(Change::Removed(addr, size));
        Ok(())
    }

    /// Applies `alloc`: a block of `requested` bytes at `addr`. An entry that contradicts the state is an error, and
    /// applied as far as possible.
    pub(crate) fn alloc(&mut self, addr: u64, requested: u64, stack: StackId, stream: u64) -> ApplyResult {
        self.allocated_bytes = 0;
        let rounded = round_size(requested, &self.settings);
        let mut is_consistent = true;
        let id = if let Some(id) = self.find(addr) {
            id
        } else {
            is_consistent = false;
            match self.tile_containing(addr) {
                Some(id) => {
                    let tile = self.tiles[id as usize];
                    if tile.state != BlockState::Inactive && addr - tile.addr < tile.requested.max(1) {
                        return Err(Contradiction);
                    }
                    // The settings give the block before a larger size than the trace.
                    if tile.state == BlockState::ActiveAllocated {
                        self.damaged_blocks.push(tile.addr);
                    }
                    let rest = self.split(id, addr);
                    self.set_state(rest, BlockState::Inactive, 0, tile.stack);
                    rest
                }
                // The trace lacks the entry that took this memory from the device.
                None => self.insert_range(DeviceRange {
                    addr,
                    size: rounded,
                    pool: PoolId::default(),
                    stream,
                    is_small: is_small_request(rounded),
                    is_expandable: false,
                })?,
            }
        };
        let tile = self.tiles[id as usize];
        is_consistent &= tile.state == BlockState::Inactive && tile.size >= rounded;
        let stream_pool = self.stream_pools[tile.stream_pool as usize];
        let size = block_size(rounded, tile.size, stream_pool.is_small, &self.settings);
        let is_no_split = self.no_split.contains(&stream_pool.pool);
        if !is_no_split && size < tile.size && tile.state == BlockState::Inactive {
            self.split(id, addr + size);
        }
        self.set_state(id, BlockState::ActiveAllocated, requested, stack);
        self.allocated_bytes = self.tiles[id as usize].size;
        if is_consistent { Ok(()) } else { Err(Contradiction) }
    }

    /// Places an initial block in free memory.
    pub(crate) fn place_block(&mut self, block: &BlockView) -> ApplyResult {
        let id = self.split_out(block.addr, block.size)?;
        self.set_state(id, block.state, block.requested, block.context);
        Ok(())
    }

    /// Applies `free_requested`.
    pub(crate) fn free_requested(&mut self, addr: u64) -> ApplyResult {
        let id = self.find(addr).ok_or(Contradiction)?;
        let tile = &mut self.tiles[id as usize];
        if tile.state != BlockState::ActiveAllocated {
            return Err(Contradiction);
        }
        // It stays active, with its requested bytes.
        tile.state = BlockState::ActivePendingFree;
        self.totals.allocated -= tile.size;
        self.stream_pools[tile.stream_pool as usize].pending += tile.size;
        self.record_change(Change::Block(addr));
        Ok(())
    }

    /// Applies `free_completed`. Its `free_requested` may be missing in old or filtered traces.
    pub(crate) fn free_completed(&mut self, addr: u64) -> ApplyResult {
        let id = self.find(addr).ok_or(Contradiction)?;
        let tile = self.tiles[id as usize];
        if tile.state == BlockState::Inactive {
            return Err(Contradiction);
        }
        self.set_state(id, BlockState::Inactive, 0, tile.stack);
        self.merge(id);
        Ok(())
    }
}

#[inline]
fn update_sum(sum: &mut u64, bytes: u64, is_added: bool) {
    *sum = if is_added { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
}
