//! Ranges of free addresses, and the first of them that is long enough. A program that grows beside thousands of small
//! gaps would search all of them for each request.

use crate::base::step_counter::count_step;

/// A range of addresses that no other of its set touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::allocator) struct FreeRange {
    pub(in crate::allocator) start: u64,
    pub(in crate::allocator) end: u64,
    /// Whether a search may find it.
    pub(in crate::allocator) is_usable: bool,
}

impl FreeRange {
    fn usable_bytes(&self) -> u64 {
        if self.is_usable { self.end - self.start } else { 0 }
    }
}

/// A longer chunk is split in two.
const MAX_CHUNK_LEN: usize = 64;

/// Some of the ranges, by address.
#[derive(Debug, Clone)]
struct Chunk {
    /// Usable bytes of the longest.
    longest: u64,
    ranges: Vec<FreeRange>,
}

impl Chunk {
    fn new(ranges: Vec<FreeRange>) -> Self {
        Self { longest: ranges.iter().map(FreeRange::usable_bytes).max().unwrap_or(0), ranges }
    }
}

/// An ordered set of ranges, stored as sorted chunks of bounded length.
#[derive(Debug, Clone, Default)]
pub(in crate::allocator) struct FreeRanges {
    /// In order; none is empty.
    chunks: Vec<Chunk>,
}

impl FreeRanges {
    /// The first range of at least `size` usable bytes.
    pub(in crate::allocator) fn first(&self, size: u64) -> Option<FreeRange> {
        let chunk = self.chunks.iter().inspect(|_| count_step()).find(|chunk| chunk.longest >= size)?;
        chunk.ranges.iter().inspect(|_| count_step()).find(|range| range.usable_bytes() >= size).copied()
    }

    /// Adds a range, which becomes one with the ranges that end and begin where it does, if it may be joined to them.
    pub(in crate::allocator) fn add(&mut self, added: FreeRange, [joins_prev, joins_next]: [bool; 2]) {
        let mut range = added;
        if joins_prev
            && let Some(before) = self.at(added.start.saturating_sub(1)).filter(|range| range.end == added.start)
        {
            self.remove(before);
            range = FreeRange { start: before.start, is_usable: range.is_usable || before.is_usable, ..range };
        }
        if joins_next && let Some(after) = self.at(added.end).filter(|range| range.start == added.end) {
            self.remove(after);
            range = FreeRange { end: after.end, is_usable: range.is_usable || after.is_usable, ..range };
        }
        self.insert(range);
    }

    /// Removes the addresses from `start` to `end`. `is_usable` says whether a search may find the rest of their range.
    pub(in crate::allocator) fn cut(&mut self, start: u64, end: u64, is_usable: impl Fn(u64, u64) -> bool) {
        let Some(range) = self.at(start).filter(|range| range.end >= end) else { return };
        self.remove(range);
        for (start, end) in [(range.start, start), (end, range.end)] {
            if start < end {
                self.insert(FreeRange { start, end, is_usable: range.is_usable && is_usable(start, end) });
            }
        }
    }

    /// The range with the lowest addresses.
    pub(in crate::allocator) fn lowest(&self) -> Option<FreeRange> {
        self.chunks.first()?.ranges.first().copied()
    }

    /// The range with this address.
    pub(in crate::allocator) fn at(&self, addr: u64) -> Option<FreeRange> {
        self.at_or_after(addr).filter(|range| range.start <= addr)
    }

    /// The first range that ends after `addr`.
    pub(in crate::allocator) fn at_or_after(&self, addr: u64) -> Option<FreeRange> {
        let chunk = self.chunks.get(self.chunk_of(addr))?;
        chunk.ranges.get(chunk.ranges.partition_point(|range| range.end <= addr)).copied()
    }

    /// The first chunk whose last range ends after `addr`.
    fn chunk_of(&self, addr: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.ranges.last().is_some_and(|last| last.end <= addr))
    }

    fn insert(&mut self, range: FreeRange) {
        // After every other range: in the last chunk.
        let at = self.chunk_of(range.start).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk::new(vec![range]));
            return;
        };
        let place = chunk.ranges.partition_point(|other| other.end <= range.start);
        chunk.ranges.insert(place, range);
        chunk.longest = chunk.longest.max(range.usable_bytes());
        if chunk.ranges.len() > MAX_CHUNK_LEN {
            let rest = chunk.ranges.split_off(MAX_CHUNK_LEN / 2);
            *chunk = Chunk::new(std::mem::take(&mut chunk.ranges));
            self.chunks.insert(at + 1, Chunk::new(rest));
        }
    }

    fn remove(&mut self, range: FreeRange) {
        let at = self.chunk_of(range.start);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        chunk.ranges.retain(|other| *other != range);
        if chunk.ranges.is_empty() {
            self.chunks.remove(at);
        } else if chunk.longest == range.usable_bytes() {
            *chunk = Chunk::new(std::mem::take(&mut chunk.ranges));
        }
    }

    #[cfg(test)]
    pub(in crate::allocator) fn iter(&self) -> impl Iterator<Item = &FreeRange> {
        self.chunks.iter().flat_map(|chunk| &chunk.ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of addresses: part of no range, of a free block, of a hole.
    fn runs_of(cells: &[u8]) -> Vec<FreeRange> {
        let mut ranges: Vec<FreeRange> = Vec::new();
        for (addr, cell) in (0..).zip(cells).filter(|(_, cell)| **cell != 0) {
            let is_usable = *cell == 2;
            match ranges.last_mut().filter(|range| range.end == addr) {
                Some(range) => *range = FreeRange { end: addr + 1, is_usable: range.is_usable || is_usable, ..*range },
                None => ranges.push(FreeRange { start: addr, end: addr + 1, is_usable }),
            }
        }
        ranges
    }

    #[test]
    fn matches_a_plain_list_of_addresses() {
        let (mut ranges, mut cells) = (FreeRanges::default(), vec![0; 2000]);
        let mut random = 1_u64;
        for step in 0..6000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let addr = (random >> 33) % 1997;
            let range = addr as usize..addr as usize + 1 + (random >> 60) as usize % 3;
            if cells[range.clone()].iter().all(|cell| *cell == 0) {
                let is_usable = step % 3 == 0;
                cells[range.clone()].fill(1 + u8::from(is_usable));
                ranges.add(FreeRange { start: addr, end: range.end as u64, is_usable }, [true; 2]);
            } else if cells[range.clone()].iter().all(|cell| *cell != 0) {
                cells[range.clone()].fill(0);
                ranges.cut(addr, range.end as u64, |start, end| {
                    cells[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()].contains(&2)
                });
            }
            if step % 100 == 0 {
                let expected = runs_of(&cells);
                assert!(ranges.iter().eq(&expected), "step {step}");
                for size in 1..12 {
                    let first = expected.iter().find(|range| range.is_usable && range.end - range.start >= size);
                    assert_eq!(ranges.first(size).as_ref(), first, "step {step}");
                }
            }
        }
        assert!(ranges.chunks.len() > 4);
        ranges.cut(0, 3000, |_, _| true); // which is no part of a range
        ranges.add(FreeRange { start: 5000, end: 5001, is_usable: true }, [false; 2]);
        ranges.add(FreeRange { start: 5001, end: 5002, is_usable: true }, [false; 2]); // of another segment
        assert_eq!(ranges.iter().last().map(|range| range.start), Some(5001));
    }
}
