//! Interned strings, slices and values, addressed by 32-bit ids.
//!
//! All contents of strings and slices are in one vector. The hash table holds only (hash, id), so that nothing is stored
//! twice and growth never hashes a content again.

use std::hash::{BuildHasher as _, Hash};
use std::ops::Range;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::base::ids::{SymbolId, to_u32};

/// A map for keys that come from a file. The hash has a random seed, so that nobody can construct a file whose keys
/// collide. The order of iteration is random: iterate only to sum or to sort.
pub type SeededMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The same without values.
pub type SeededSet<K> = std::collections::HashSet<K, RandomState>;

/// The ids of contents that lie one after the other; ids are dense and in order of first appearance.
#[derive(Debug, Clone, Default)]
struct Ids {
    /// Where each content ends.
    ends: Vec<usize>,
    table: HashTable<(u32, u32)>,
    /// See [`SeededMap`]; ids do not depend on it.
    seed: RandomState,
}

/// The 64-bit hash that hashbrown needs, from the 32 bits that the table keeps.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Ids {
    fn hash(&self, content: impl Hash) -> u32 {
        (self.seed.hash_one(content) >> 32) as u32
    }

    fn find(&self, hash: u32, is_equal: impl Fn(Range<usize>) -> bool) -> Option<u32> {
        self.table.find(spread(hash), |&(h, id)| h == hash && is_equal(self.range(id))).map(|&(_, id)| id)
    }

    /// Adds the content that ends at `end`.
    fn add(&mut self, hash: u32, end: usize) -> u32 {
        let id = to_u32(self.ends.len());
        self.ends.push(end);
        self.table.insert_unique(spread(hash), (hash, id), |&(h, _)| spread(h));
        id
    }

    /// The place of content `id`. An id of another table gets a range that no data has.
    fn range(&self, id: u32) -> Range<usize> {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends.get(id - 1).copied().unwrap_or(usize::MAX) };
        start..self.ends.get(id).copied().unwrap_or(0)
    }
}

/// Distinct slices of `T`.
#[derive(Debug, Clone, Default)]
pub struct Slices<T> {
    data: Vec<T>,
    ids: Ids,
}

impl<T: Copy + Eq + Hash> Slices<T> {
    /// The id of `slice`, stored if it is new.
    pub fn intern(&mut self, slice: &[T]) -> u32 {
        let hash = self.ids.hash(slice);
        self.ids.find(hash, |range| self.data.get(range) == Some(slice)).unwrap_or_else(|| {
            self.data.extend_from_slice(slice);
            self.ids.add(hash, self.data.len())
        })
    }

    /// The content of `id`; empty for an id of another table.
    pub fn get(&self, id: u32) -> &[T] {
        self.data.get(self.ids.range(id)).unwrap_or(&[])
    }

    /// Number of distinct slices.
    pub fn len(&self) -> usize {
        self.ids.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.ends.is_empty()
    }
}

/// Distinct values, in the order of their first use.
#[derive(Debug, Clone)]
pub struct Distinct<T> {
    pub all: Vec<T>,
    rows: SeededMap<T, u32>,
    /// The row of the last value: many come several times in a row.
    last: u32,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { all: Vec::new(), rows: SeededMap::default(), last: 0 }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    /// The row of `value`, added if it is new.
    pub fn add(&mut self, value: T) -> u32 {
        if self.all.get(self.last as usize) != Some(&value) {
            self.last = *self.rows.entry(value).or_insert_with(|| {
                self.all.push(value);
                to_u32(self.all.len() - 1)
            });
        }
        self.last
    }

    pub fn find(&self, value: T) -> Option<u32> {
        self.rows.get(&value).copied()
    }
}

/// Distinct strings.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    text: String,
    ids: Ids,
}

impl Symbols {
    /// The id of `text`, stored if it is new.
    pub fn intern(&mut self, text: &str) -> SymbolId {
        let hash = self.ids.hash(text);
        SymbolId(self.ids.find(hash, |range| self.text.get(range) == Some(text)).unwrap_or_else(|| {
            self.text.push_str(text);
            self.ids.add(hash, self.text.len())
        }))
    }

    /// The string of `id`; empty for an id of another table.
    pub fn get(&self, id: SymbolId) -> &str {
        self.text.get(self.ids.range(id.0)).unwrap_or_default()
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.ids.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_slices_share_an_id_also_empty_ones() {
        let mut slices = Slices::<u32>::default();
        let ids: Vec<u32> = [&[][..], &[1u32], &[1, 2], &[], &[1], &[2, 1]].iter().map(|x| slices.intern(x)).collect();
        assert_eq!(ids, [0, 1, 2, 0, 1, 3]);
        assert_eq!(slices.get(2), [1, 2]);
        assert!(slices.get(0).is_empty());
        assert!(slices.get(99).is_empty());
        assert_eq!(slices.len(), 4);
    }

    #[test]
    fn ids_survive_growth() {
        let mut symbols = Symbols::default();
        let ids: Vec<_> = (0..5000).map(|i| symbols.intern(&format!("s{i}"))).collect();
        for (i, id) in ids.iter().enumerate() {
            assert_eq!(symbols.get(*id), format!("s{i}"));
            assert_eq!(symbols.intern(&format!("s{i}")), *id);
        }
    }
}
