//! Sums of blocks by a key, and tables of the largest sums.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::units::ratio;

/// A sum over blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockSum {
    /// Bytes in the blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl BlockSum {
    /// The sum of blocks of these sizes.
    pub fn from_sizes(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.fold(Self::default(), |sum, bytes| sum.plus(Self { bytes, blocks: 1 }))
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), blocks: self.blocks.saturating_add(other.blocks) }
    }

    /// The sum of the blocks in `self` but not in `other`.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), blocks: self.blocks.saturating_sub(other.blocks) }
    }

    pub(crate) fn named(self, name: Option<String>, all: Self) -> NamedShare {
        NamedShare { name, share: self.share_of(all) }
    }

    pub(crate) fn share_of(self, all: Self) -> Share {
        Share { bytes: self.bytes, blocks: self.blocks, share_ratio: ratio(self.bytes, all.bytes) }
    }
}

/// A sum over blocks, as a share of the allocated memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Share {
    /// Bytes in the blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
}

/// A sum over the blocks of one name: of a phase, a file, an annotation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedShare {
    /// The name; null for blocks without one.
    pub name: Option<String>,
    /// Size and share.
    #[serde(flatten)]
    pub share: Share,
}

/// The largest rows of a table, and the sum of all others.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TopRows<T> {
    /// The rows with most bytes, descending, `--top` of them.
    pub rows: Vec<T>,
    /// The sum of the blocks in no row.
    pub rest: BlockSum,
}

/// Sums by key.
pub type BlockSums<K> = FxHashMap<K, BlockSum>;

/// Sums up blocks, given as key and bytes.
pub fn sum_by_key<K: Eq + Hash>(blocks: impl Iterator<Item = (K, u64)>) -> BlockSums<K> {
    let mut sums: BlockSums<K> = FxHashMap::default();
    for (key, bytes) in blocks {
        let sum = sums.entry(key).or_default();
        *sum = sum.plus(BlockSum { bytes, blocks: 1 });
    }
    sums
}

/// The sums by descending bytes, then by key, so that the order depends only on the file.
pub fn sorted_by_bytes<K: Copy + Ord>(sums: BlockSums<K>) -> Vec<(K, BlockSum)> {
    let mut ranked: Vec<(K, BlockSum)> = sums.into_iter().collect();
    ranked.sort_unstable_by_key(|(key, sum)| (Reverse(sum.bytes), *key));
    ranked
}

/// The `top` largest of `sums` as rows. The rest is `all` minus these rows.
pub fn top_rows<K: Copy + Ord, T>(
    sums: BlockSums<K>,
    all: BlockSum,
    top: usize,
    row: impl Fn(K, BlockSum) -> T,
) -> TopRows<T> {
    let mut rest = all;
    let mut rows = Vec::new();
    for (key, sum) in sorted_by_bytes(sums).into_iter().take(top) {
        rest = rest.minus(sum);
        rows.push(row(key, sum));
    }
    TopRows { rows, rest }
}
