//! The free blocks of one free list, in search order.

use super::block::BlockId;
use crate::base::step_counter::count_step;

/// The sort key of a free block. Field order is sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    pub(super) size: u64,
    /// 0 in releases that do not compare it.
    pub(super) registration: u32,
    pub(super) addr: u64,
    pub(super) id: BlockId,
}

impl FreeKey {
    /// Sorts before every block of `size` bytes or more.
    pub(super) fn at_least(size: u64) -> Self {
        Self { size, registration: 0, addr: 0, id: BlockId::ZERO }
    }
}

/// A longer chunk is split in two.
const MAX_CHUNK_LEN: usize = 64;

/// An ordered set, stored as sorted chunks of bounded length. Most free lists have a single chunk, which is
/// faster to search and to change than a `BTreeSet`.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeSet {
    /// In order; none is empty.
    chunks: Vec<Vec<FreeKey>>,
    /// The last key of each chunk: a search for a chunk reads no other memory.
    lasts: Vec<FreeKey>,
    /// Where the next key to remove may be. The block that serves a request is removed without a second search.
    pub(super) likely_removal: (usize, usize),
}

impl FreeSet {
    /// Position of the first key that is not less than `key`: chunk and index in the chunk. Both may be one past the
    /// end, where the callers find no keys.
    #[inline]
    pub(super) fn find(&self, key: &FreeKey) -> (usize, usize) {
        let chunk = lower_bound(&self.lasts, key);
        (chunk, self.chunks.get(chunk).map_or(0, |keys| lower_bound(keys, key)))
    }

    /// Adds `key`, which must not be in the set yet.
    #[inline]
    pub(super) fn insert(&mut self, key: FreeKey) {
        let (mut at, mut place) = self.find(&key);
        if at == self.chunks.len() {
            // Greater than every key: append to the last chunk.
            at = at.saturating_sub(1);
            place = self.chunks.get(at).map_or(0, Vec::len);
        }
        let Some(chunk) = self.chunks.get_mut(at) else {
            // The set was empty.
            self.chunks.push(vec![key]);
            self.lasts.push(key);
            return;
        };
        chunk.insert(place, key);
        if chunk.len() > MAX_CHUNK_LEN {
            let rest = chunk.split_off(MAX_CHUNK_LEN / 2);
            self.chunks.insert(at + 1, rest);
            self.lasts.insert(at, key);
            self.note_last(at + 1);
        }
        self.note_last(at);
    }

    /// Removes `key` if it is in the set.
    #[inline]
    pub(super) fn remove(&mut self, key: &FreeKey) {
        let (mut at, mut place) = self.likely_removal;
        if self.chunks.get(at).and_then(|chunk| chunk.get(place)) != Some(key) {
            (at, place) = self.find(key);
        }
        let Some(chunk) = self.chunks.get_mut(at).filter(|chunk| chunk.get(place) == Some(key)) else {
            return; // `key` is not in the set
        };
        chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(at);
            self.lasts.remove(at);
        } else {
            self.note_last(at);
        }
    }

    #[inline]
    fn note_last(&mut self, at: usize) {
        if let (Some(last), Some(key)) = (self.lasts.get_mut(at), self.chunks.get(at).and_then(|chunk| chunk.last())) {
            *last = *key;
        }
    }

    /// The block with this key.
    pub(super) fn id_at(&self, size: u64, registration: u32, addr: u64) -> Option<BlockId> {
        let at_least = FreeKey { size, registration, addr, id: BlockId::ZERO };
        let found = self.range_from(at_least).next()?;
        (found.size == size && found.registration == registration && found.addr == addr).then_some(found.id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &FreeKey> {
        self.chunks.iter().flatten().inspect(|_| count_step())
    }

    /// The keys not less than `key`, ascending.
    #[inline]
    pub(super) fn range_from(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        self.range_at(self.find(&key))
    }

    /// The keys from a position that [`Self::find`] found, ascending.
    #[inline]
    pub(super) fn range_at(&self, (at, place): (usize, usize)) -> impl Iterator<Item = &FreeKey> {
        let mut chunks = self.chunks[at..].iter();
        // If every key is less, there is no chunk at `at`.
        let first = chunks.next().map(|chunk| &chunk[place..]).unwrap_or_default();
        first.iter().chain(chunks.flatten()).inspect(|_| count_step())
    }

    /// The keys less than `key`, descending.
    pub(super) fn range_before_rev(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        let (at, place) = self.find(&key);
        // If every key is less, there is no chunk at `at`: all keys are in `rest`.
        let last = self.chunks.get(at).map(|chunk| &chunk[..place]).unwrap_or_default();
        let rest = &self.chunks[..at];
        last.iter().rev().chain(rest.iter().rev().flat_map(|chunk| chunk.iter().rev())).inspect(|_| count_step())
    }
}

/// Number of `keys` less than `key`. Sizes nearly always differ, so they are compared first: a search by one
/// number alone compiles to code without branches.
#[inline]
fn lower_bound(keys: &[FreeKey], key: &FreeKey) -> usize {
    let smaller = keys.partition_point(|k| k.size < key.size);
    match keys.get(smaller..) {
        Some(rest) if rest.first().is_some_and(|first| first < key) => smaller + rest.partition_point(|k| k < key),
        _ => smaller,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(size: u64) -> FreeKey {
        FreeKey { addr: size / 3, ..FreeKey::at_least(size) }
    }

    /// Pseudo-random numbers below `n`.
    fn numbers(n: u64) -> impl Iterator<Item = u64> {
        let states = std::iter::successors(Some(1u64), |state| {
            Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
        });
        states.map(move |state| (state >> 33) % n)
    }

    #[test]
    fn matches_a_btree_set() {
        let (mut set, mut plain) = (FreeSet::default(), BTreeSet::new());
        for (step, n) in numbers(3000).take(20_000).enumerate() {
            let key = key(n);
            if plain.insert(key) {
                set.insert(key);
            } else {
                plain.remove(&key);
                set.remove(&key);
            }
            set.remove(&FreeKey { registration: 1, ..key }); // which is not in it
            if step % 500 == 0 {
                assert!(set.iter().eq(&plain));
                assert!(set.range_from(key).eq(plain.range(key..)));
                assert!(set.range_before_rev(key).eq(plain.range(..key).rev()));
                assert!(set.lasts.iter().eq(set.chunks.iter().filter_map(|chunk| chunk.last())));
            }
        }
        assert!(set.chunks.len() > 4);
        for key in plain {
            set.remove(&key);
        }
        assert!(set.chunks.is_empty());
    }
}
