//! Blocks summed up by a key: the largest sums as rows, all others as one.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::units::ratio;

/// Bytes in blocks, and how many blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Sum {
    /// With more bytes and blocks.
    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            blocks: self.blocks.saturating_add(more.blocks),
        }
    }

    /// What is left when `part` is taken away.
    pub(crate) fn less(self, part: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(part.bytes),
            blocks: self.blocks.saturating_sub(part.blocks),
        }
    }

    /// As a part of `all`.
    pub(crate) fn of(self, all: Self) -> Share {
        Share { bytes: self.bytes, blocks: self.blocks, share_ratio: ratio(self.bytes, all.bytes) }
    }
}

/// A part of the allocated memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Share {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
}

/// The largest rows of a table, and all else as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopRows<T> {
    /// Most bytes first.
    pub rows: Vec<T>,
    /// What is in no row.
    pub rest: Sum,
}

/// Sums by key.
pub(crate) type Sums<K> = FxHashMap<K, Sum>;

/// Adds up blocks, each given by its key and its bytes.
pub(crate) fn summed<K: Eq + Hash>(blocks: impl Iterator<Item = (K, u64)>) -> Sums<K> {
    let mut sums: Sums<K> = FxHashMap::default();
    for (key, bytes) in blocks {
        let sum = sums.entry(key).or_default();
        *sum = sum.and(Sum { bytes, blocks: 1 });
    }
    sums
}

/// The largest first; ties in the order of their keys, which the file fixes.
pub(crate) fn ranked<K: Copy + Ord>(sums: Sums<K>) -> Vec<(K, Sum)> {
    let mut ranked: Vec<(K, Sum)> = sums.into_iter().collect();
    ranked.sort_unstable_by_key(|(key, sum)| (Reverse(sum.bytes), *key));
    ranked
}

/// The `top` largest of `sums` as rows; the rest is what they leave of `all`.
pub(crate) fn table<K: Copy + Ord, T>(
    sums: Sums<K>,
    all: Sum,
    top: usize,
    row: impl Fn(K, Sum) -> T,
) -> TopRows<T> {
    let mut rest = all;
    let mut rows = Vec::new();
    for (key, sum) in ranked(sums).into_iter().take(top) {
        rest = rest.less(sum);
        rows.push(row(key, sum));
    }
    TopRows { rows, rest }
}
