//! Corrects the guessed order of age by what the recorded allocator chose.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use super::block::{BlockId, PoolBlockState};
use super::caching::CachingAllocator;
use super::free_set::FreeKey;
use super::request::Request;
use crate::allocator::releases::TieBreak;

impl CachingAllocator {
    /// The relative age of initial segments is unknown until the recorded allocator chose between two of them. Makes
    /// the free block at `addr` the one that serves `request`, if only the guessed order prevents it.
    pub fn prefer_block_at(&mut self, request: &Request<'_>, addr: u64) {
        if self.behaviour.tie_break() == TieBreak::LowestAddress || self.initial_ages.places.is_empty() {
            return;
        }
        let Some(first) = self.find_free_block(request).filter(|key| key.addr != addr) else {
            return; // no free block serves the request, or this one does already
        };
        // If there is none, the block is not free, or of another size: its age does not matter.
        if let Some(chosen) = self.free_block_at(first, addr) {
            let ids = [first.id, chosen];
            let [older, younger] = ids.map(|id| self.blocks[id].registration);
            if self.initial_ages.is_guess(younger) && first.registration < self.initial_ages.place(younger) {
                let blocks = ids.map(|id| self.free_blocks_of_age(id)).concat();
                self.change_ages(&blocks, |places| places.swap(older as usize, younger as usize));
            }
        }
    }

    /// The free block at `addr` in the same free list as `like`, and of its size.
    fn free_block_at(&self, like: FreeKey, addr: u64) -> Option<BlockId> {
        let free = &self.pools.free_lists[self.blocks[like.id].free_list as usize].free;
        if self.behaviour.tie_break() == TieBreak::OldestSegment {
            let segment = self.initial_ages.segment_around(addr)?;
            return free.id_at(like.size, self.initial_ages.place(segment.registration), addr);
        }
        // In 2.12 the parts of a segment have ages of their own.
        let mut same_size = free.range_from(FreeKey::at_least(like.size)).take_while(|key| key.size == like.size);
        same_size.find(|key| key.addr == addr).map(|key| key.id)
    }

    /// The same for segments that were released in the order of `addrs`: within one free list and size, older
    /// segments are released first.
    pub fn prefer_release_order(&mut self, addrs: &[u64]) {
        let is_guessed = !self.initial_ages.places.is_empty();
        if self.behaviour.tie_break() == TieBreak::LowestAddress || !is_guessed || addrs.len() < 2 {
            return;
        }
        // Addresses that are not those of free segments say nothing about their order.
        let mut seen = FxHashSet::default();
        let mut released: BTreeMap<(u32, u64), Vec<BlockId>> = BTreeMap::new();
        for id in self.free_segments_at(addrs) {
            let block = &self.blocks[id];
            if self.initial_ages.is_guess(block.registration) && seen.insert(id) {
                released.entry((block.free_list, block.size)).or_default().push(id);
            }
        }
        for ids in released.values() {
            let registrations: Vec<usize> = ids.iter().map(|id| self.blocks[*id].registration as usize).collect();
            self.change_ages(ids, |places| {
                let mut sorted: Vec<u32> = registrations.iter().map(|registration| places[*registration]).collect();
                sorted.sort_unstable();
                for (registration, place) in registrations.iter().zip(sorted) {
                    places[*registration] = place;
                }
            });
        }
    }

    /// The free segments that begin at `addrs`, in this order.
    fn free_segments_at(&self, addrs: &[u64]) -> Vec<BlockId> {
        if self.behaviour.tie_break() == TieBreak::OldestSegment {
            let free = addrs.iter().filter_map(|addr| {
                let segment = self.initial_ages.segment_around(*addr).filter(|segment| segment.addr == *addr)?;
                let free = &self.pools.free_lists[segment.free_list as usize].free;
                free.id_at(segment.size, self.initial_ages.place(segment.registration), *addr)
            });
            return free.collect();
        }
        let wanted: FxHashSet<u64> = addrs.iter().copied().collect();
        let found = self.blocks.ids().filter(|id| wanted.contains(&self.blocks[*id].addr));
        let free = found.filter(|id| self.blocks[*id].state == PoolBlockState::Free && !self.blocks[*id].is_split());
        let by_addr: BTreeMap<u64, BlockId> = free.map(|id| (self.blocks[id].addr, id)).collect();
        addrs.iter().filter_map(|addr| by_addr.get(addr).copied()).collect()
    }

    /// The free blocks that have the registration of `id`.
    fn free_blocks_of_age(&self, id: BlockId) -> Vec<BlockId> {
        let mut blocks = vec![id];
        if self.behaviour.tie_break() == TieBreak::OldestSegment {
            let before =
                std::iter::successors(self.blocks[id].prev.as_option(), |id| self.blocks[*id].prev.as_option());
            let after = std::iter::successors(self.blocks[id].next.as_option(), |id| self.blocks[*id].next.as_option());
            blocks.extend(before.chain(after).filter(|id| self.blocks[*id].state == PoolBlockState::Free));
        }
        blocks
    }

    /// Changes the places of the registrations that `blocks` have; these are all of their free blocks.
    fn change_ages(&mut self, blocks: &[BlockId], change: impl Fn(&mut [u32])) {
        for id in blocks {
            self.remove_from_free_list(*id);
        }
        change(&mut self.initial_ages.places);
        for id in blocks {
            let since = self.blocks[*id].gc_count_base;
            self.insert_free(*id);
            self.blocks[*id].gc_count_base = since;
        }
    }
}
