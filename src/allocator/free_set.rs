//! The free blocks of one free list in the order in which they are searched.

use super::block::BlockId;

/// A free block where it stands in its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    pub(super) size: u64,
    /// 0 in releases that do not look at it.
    pub(super) registration: u32,
    pub(super) addr: u64,
    pub(super) id: BlockId,
}

impl FreeKey {
    /// Stands before every block of `size` bytes or more.
    pub(super) fn at_least(size: u64) -> Self {
        Self { size, registration: 0, addr: 0, id: BlockId::ZERO }
    }
}

/// A chunk that grows longer than this is halved.
const LONGEST: usize = 64;

/// An ordered set, as sorted chunks of bounded length: most free lists have but one, which is searched and
/// changed faster than a tree.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeSet {
    /// In order, none of them empty.
    chunks: Vec<Vec<FreeKey>>,
}

impl FreeSet {
    /// Where the first key stands that is not before `key`: its chunk, and its place there.
    #[inline]
    fn find(&self, key: &FreeKey) -> (usize, usize) {
        let ends_before = |chunk: &Vec<FreeKey>| chunk.last().is_some_and(|last| last < key);
        let chunk = self.chunks.partition_point(ends_before);
        (chunk, self.chunks.get(chunk).map_or(0, |keys| place_in(keys, key)))
    }

    /// Adds a key that is not in the set.
    #[inline]
    pub(super) fn insert(&mut self, key: FreeKey) {
        let (mut at, mut place) = self.find(&key);
        if at == self.chunks.len() {
            // After all others.
            at = at.saturating_sub(1);
            place = self.chunks.get(at).map_or(0, Vec::len);
        }
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(vec![key]);
            return;
        };
        chunk.insert(place, key);
        if chunk.len() > LONGEST {
            let rest = chunk.split_off(LONGEST / 2);
            self.chunks.insert(at + 1, rest);
        }
    }

    /// Takes a key out, if it is in the set.
    #[inline]
    pub(super) fn remove(&mut self, key: &FreeKey) {
        let (at, place) = self.find(key);
        let Some(chunk) = self.chunks.get_mut(at).filter(|chunk| chunk.get(place) == Some(key))
        else {
            return;
        };
        chunk.remove(place);
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
    }

    /// All keys, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &FreeKey> {
        self.chunks.iter().flatten()
    }

    /// The keys from `key` on, in order.
    #[inline]
    pub(super) fn from(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        let (at, place) = self.find(&key);
        let first = self.chunks.get(at).and_then(|chunk| chunk.get(place..)).unwrap_or_default();
        let rest = self.chunks.get(at + 1..).unwrap_or_default();
        first.iter().chain(rest.iter().flatten())
    }

    /// The keys before `key`, the last first.
    pub(super) fn before(&self, key: FreeKey) -> impl Iterator<Item = &FreeKey> {
        let (at, place) = self.find(&key);
        let last = self.chunks.get(at).and_then(|chunk| chunk.get(..place)).unwrap_or_default();
        let rest = &self.chunks[..at];
        last.iter().rev().chain(rest.iter().rev().flat_map(|chunk| chunk.iter().rev()))
    }
}

/// How many of `keys` are before `key`. Sizes come first, as what nearly always differs: a comparison
/// of numbers alone costs the processor no guesses.
#[inline]
fn place_in(keys: &[FreeKey], key: &FreeKey) -> usize {
    let smaller = keys.partition_point(|k| k.size < key.size);
    match keys.get(smaller..) {
        Some(rest) if rest.first().is_some_and(|first| first < key) => {
            smaller + rest.partition_point(|k| k < key)
        }
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

    /// Numbers that look random, below `n`.
    fn numbers(n: u64) -> impl Iterator<Item = u64> {
        let next = |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        std::iter::successors(Some(1), next).map(move |x| (x >> 33) % n)
    }

    #[test]
    fn it_is_an_ordered_set() {
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
                assert!(set.from(key).eq(plain.range(key..)));
                assert!(set.before(key).eq(plain.range(..key).rev()));
            }
        }
        assert!(set.chunks.len() > 4);
        for key in plain {
            set.remove(&key);
        }
        assert!(set.chunks.is_empty());
    }
}
