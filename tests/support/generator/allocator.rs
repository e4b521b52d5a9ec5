//! The caching allocator of PyTorch 2.15 with its default settings: one device, one stream, no
//! out-of-memory. It exists so that the trace of a generated snapshot is one that PyTorch could
//! have recorded and that its segments are really the end of that trace.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::{Action, Journal};
use super::stacks::Traceback;

const MIB: u64 = 1 << 20;
const MIN_BLOCK: u64 = 512;
/// The largest block of the small pool.
const SMALL_LIMIT: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
/// From this size on a segment is made to measure.
const OWN_SEGMENT_FROM: u64 = 10 * MIB;
const SEGMENT_ROUNDING: u64 = 2 * MIB;
const DEVICE_BASE: u64 = 0x5000_0000_0000;

/// Names a block until it is freed.
pub type BlockId = usize;

/// A block object as PyTorch has it. Its identity matters: a freed block keeps the last
/// `requested` that was stored in it, through later splits and merges.
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub requested: u64,
    pub allocated_by: Option<Traceback>,
    pub segment_made_by: Option<Traceback>,
    previous: Option<BlockId>,
    next: Option<BlockId>,
    segment_number: u64,
    pub is_small: bool,
}

struct Segment {
    size: u64,
    first: BlockId,
}

/// (size, number of the segment, address, block): the order of the search for the best fit.
type FreeSet = BTreeSet<(u64, u64, u64, BlockId)>;

#[derive(Default)]
pub struct Allocator {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
    segments: BTreeMap<u64, Segment>,
    segments_made: u64,
    free_small: FreeSet,
    free_large: FreeSet,
}

impl Allocator {
    pub fn allocate(&mut self, requested: u64, traceback: Traceback, journal: &mut Journal) -> BlockId {
        let rounded = requested.next_multiple_of(MIN_BLOCK);
        let is_small = rounded <= SMALL_LIMIT;
        let found = match self.take_best_fit(rounded, is_small) {
            Some(found) => found,
            None => self.make_segment(rounded, is_small, traceback, journal),
        };
        let remaining = self.blocks[found].size - rounded;
        let splits = if is_small { remaining >= MIN_BLOCK } else { remaining > SMALL_LIMIT };
        let block = if splits { self.split(found, rounded) } else { found };
        self.blocks[block].requested = requested;
        self.blocks[block].allocated_by = Some(traceback);
        journal.record(Action::Alloc, self.blocks[block].address, requested, traceback);
        block
    }

    pub fn free(&mut self, block: BlockId, traceback: Traceback, journal: &mut Journal) {
        let (address, requested) = (self.blocks[block].address, self.blocks[block].requested);
        journal.record(Action::FreeRequested, address, requested, traceback);
        journal.record(Action::FreeCompleted, address, requested, traceback);
        self.blocks[block].allocated_by = None;
        if let Some(previous) = self.free_neighbour(self.blocks[block].previous) {
            self.absorb_previous(block, previous);
        }
        if let Some(next) = self.free_neighbour(self.blocks[block].next) {
            self.absorb_next(block, next);
        }
        self.insert_free(block);
    }

    /// Gives back every segment that has no block in use, large ones first.
    pub fn empty_cache(&mut self, traceback: Traceback, journal: &mut Journal) {
        for is_small in [false, true] {
            for key in std::mem::take(self.free_set(is_small)) {
                let (size, _, address, block) = key;
                if self.is_whole_segment(block) {
                    journal.record(Action::SegmentFree, address, size, traceback);
                    self.segments.remove(&address);
                    self.vacant.push(block);
                } else {
                    self.free_set(is_small).insert(key);
                }
            }
        }
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The blocks of every segment, both by address.
    pub fn segments(&self) -> impl Iterator<Item = Vec<&Block>> {
        self.segments.values().map(|segment| {
            let first = Some(&self.blocks[segment.first]);
            let next = |block: &&Block| block.next.map(|next| &self.blocks[next]);
            std::iter::successors(first, next).collect()
        })
    }

    fn take_best_fit(&mut self, rounded: u64, is_small: bool) -> Option<BlockId> {
        let free = self.free_set(is_small);
        let key = *free.range((rounded, 0, 0, 0)..).next()?;
        free.remove(&key);
        Some(key.3)
    }

    fn make_segment(&mut self, rounded: u64, is_small: bool, traceback: Traceback, journal: &mut Journal) -> BlockId {
        let size = if is_small {
            SMALL_SEGMENT
        } else if rounded < OWN_SEGMENT_FROM {
            LARGE_SEGMENT
        } else {
            rounded.next_multiple_of(SEGMENT_ROUNDING)
        };
        let address = self.lowest_free_address(size);
        let block = self.insert_block(Block {
            address,
            size,
            requested: 0,
            allocated_by: None,
            segment_made_by: Some(traceback),
            previous: None,
            next: None,
            segment_number: self.segments_made,
            is_small,
        });
        self.segments_made += 1;
        self.segments.insert(address, Segment { size, first: block });
        journal.record(Action::SegmentAlloc, address, size, traceback);
        block
    }

    /// Sizes of segments are multiples of the device's granularity, so no rounding is needed.
    fn lowest_free_address(&self, size: u64) -> u64 {
        let mut candidate = DEVICE_BASE;
        for (&address, segment) in &self.segments {
            if address - candidate >= size {
                break;
            }
            candidate = address + segment.size;
        }
        candidate
    }

    /// The low end becomes a new block; the old object is what remains and stays free.
    fn split(&mut self, remainder: BlockId, size: u64) -> BlockId {
        let old = &self.blocks[remainder];
        let low = Block {
            address: old.address,
            size,
            requested: 0,
            allocated_by: None,
            segment_made_by: None,
            previous: old.previous,
            next: Some(remainder),
            segment_number: old.segment_number,
            is_small: old.is_small,
        };
        let low = self.insert_block(low);
        self.link_from_previous(low);
        let old = &mut self.blocks[remainder];
        old.previous = Some(low);
        old.address += size;
        old.size -= size;
        self.insert_free(remainder);
        low
    }

    fn absorb_previous(&mut self, block: BlockId, previous: BlockId) {
        self.remove_free(previous);
        let absorbed = &self.blocks[previous];
        let (address, size, before) = (absorbed.address, absorbed.size, absorbed.previous);
        let segment_made_by = absorbed.segment_made_by;
        let kept = &mut self.blocks[block];
        kept.address = address;
        kept.size += size;
        kept.previous = before;
        kept.segment_made_by = segment_made_by;
        self.link_from_previous(block);
        self.vacant.push(previous);
    }

    fn absorb_next(&mut self, block: BlockId, next: BlockId) {
        self.remove_free(next);
        let (size, after) = (self.blocks[next].size, self.blocks[next].next);
        self.blocks[block].size += size;
        self.blocks[block].next = after;
        if let Some(after) = after {
            self.blocks[after].previous = Some(block);
        }
        self.vacant.push(next);
    }

    /// Makes what stands before a block (its left neighbour or the segment) point to it.
    fn link_from_previous(&mut self, block: BlockId) {
        match self.blocks[block].previous {
            Some(previous) => self.blocks[previous].next = Some(block),
            None => {
                let address = self.blocks[block].address;
                if let Some(segment) = self.segments.get_mut(&address) {
                    segment.first = block;
                }
            }
        }
    }

    fn free_neighbour(&self, neighbour: Option<BlockId>) -> Option<BlockId> {
        neighbour.filter(|&block| self.blocks[block].allocated_by.is_none())
    }

    fn is_whole_segment(&self, block: BlockId) -> bool {
        self.blocks[block].previous.is_none() && self.blocks[block].next.is_none()
    }

    fn insert_block(&mut self, block: Block) -> BlockId {
        match self.vacant.pop() {
            Some(place) => {
                self.blocks[place] = block;
                place
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        }
    }

    fn free_set(&mut self, is_small: bool) -> &mut FreeSet {
        if is_small { &mut self.free_small } else { &mut self.free_large }
    }

    fn free_key(&self, block: BlockId) -> (u64, u64, u64, BlockId) {
        let Block { size, segment_number, address, .. } = self.blocks[block];
        (size, segment_number, address, block)
    }

    fn insert_free(&mut self, block: BlockId) {
        let key = self.free_key(block);
        self.free_set(self.blocks[block].is_small).insert(key);
    }

    fn remove_free(&mut self, block: BlockId) {
        let key = self.free_key(block);
        self.free_set(self.blocks[block].is_small).remove(&key);
    }
}
