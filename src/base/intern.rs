//! Interned strings and slices, addressed by 32-bit ids.
//!
//! All contents are in one vector. The hash table holds only (hash, id), so that nothing is stored twice and growth
//! never hashes a content again.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::base::ids::{SymbolId, to_u32};

/// A map for keys that come from a file. The hash has a random seed, so that nobody can construct a file whose keys
/// collide. The order of iteration is random: iterate only to sum or to sort.
pub type SeededMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The same without values.
pub type SeededSet<K> = std::collections::HashSet<K, RandomState>;

/// Distinct slices of `T`; ids are dense and in order of first appearance.
#[derive(Debug, Clone)]
pub struct Slices<T> {
    data: Vec<T>,
    ends: Vec<usize>,
    table: HashTable<(u32, u32)>,
    /// See [`SeededMap`]; ids do not depend on it.
    seed: RandomState,
}

impl<T> Default for Slices<T> {
    fn default() -> Self {
        let (data, ends, table) = (Vec::new(), Vec::new(), HashTable::new());
        Self { data, ends, table, seed: RandomState::default() }
    }
}

/// The 64-bit hash that hashbrown needs, from the 32 bits that the table keeps.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<T: Copy + Eq + Hash> Slices<T> {
    /// The id of `slice`, stored if it is new.
    pub fn intern(&mut self, slice: &[T]) -> u32 {
        let hash = (self.seed.hash_one(slice) >> 32) as u32;
        let (data, ends) = (&self.data, &self.ends);
        if let Some(&(_, id)) = self.table.find(spread(hash), |&(h, id)| h == hash && slice_at(data, ends, id) == slice)
        {
            return id;
        }
        let id = to_u32(self.ends.len());
        self.data.extend_from_slice(slice);
        self.ends.push(self.data.len());
        self.table.insert_unique(spread(hash), (hash, id), |&(h, _)| spread(h));
        id
    }
}

impl<T> Slices<T> {
    /// The content of `id`; empty for an id of another table.
    pub fn get(&self, id: u32) -> &[T] {
        slice_at(&self.data, &self.ends, id)
    }

    /// Number of distinct slices.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

fn slice_at<'a, T>(data: &'a [T], ends: &[usize], id: u32) -> &'a [T] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends.get(id - 1).copied().unwrap_or(usize::MAX) };
    // The id of another table may have no end here. It gets a range that is in no data, so it has no content.
    let end = ends.get(id).copied().unwrap_or(0);
    data.get(start..end).unwrap_or(&[])
}

/// Distinct strings.
#[derive(Debug, Clone, Default)]
pub struct Symbols(Slices<u8>);

impl Symbols {
    /// The id of `text`, stored if it is new.
    pub fn intern(&mut self, text: &str) -> SymbolId {
        SymbolId(self.0.intern(text.as_bytes()))
    }

    /// The string of `id`; empty for an id of another table.
    pub fn get(&self, id: SymbolId) -> &str {
        let text = std::str::from_utf8(self.0.get(id.0));
        debug_assert!(text.is_ok(), "only strings are interned");
        text.unwrap_or_default()
    }

    /// Bytes of the string of `id`.
    pub fn bytes_of(&self, id: SymbolId) -> usize {
        self.0.get(id.0).len()
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
