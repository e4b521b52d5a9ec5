//! Sums of blocks by a key, tables of the largest sums, live blocks by the stack that allocated them, and the holders of
//! memory.

use std::cmp::Reverse;
use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::base::units::ratio;
use crate::snapshot::{Block, BlockState, Segment};
use crate::stacks::frames::{CodeLocation, FrameList, LineId, StackReader};
use crate::study::category::{Category, Confidence, ConfidenceBytes};

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

/// Live blocks that one stack allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveByStack {
    /// Size and share.
    #[serde(flatten)]
    pub share: Share,
    /// The whole stack, innermost frame first; empty if none was recorded.
    #[serde(flatten)]
    pub frames: FrameList,
}

/// Live blocks of one category that one source line allocated, with one caller.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holder {
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// The line; one row of each category gathers the stacks without a line.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operation that allocated most of these bytes; null if no stack shows one.
    pub operation: Option<String>,
    /// Share of `bytes` that `operation` allocated, 0 to 1; absent without `operation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_share_ratio: Option<f64>,
    /// The category; absent where memory is not attributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The confidence that at least half of the bytes have or exceed; absent without `category`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category_confidence: Option<Confidence>,
}

/// Blocks as tables of holders sum them up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldBlock {
    /// The stack that allocated it, with its caller and forward stack.
    pub stack: StackId,
    /// Its use and how sure that is; `None` where memory is not attributed.
    pub classification: Option<(Category, Confidence)>,
    /// It is older than the recording.
    pub is_older: bool,
}

/// The `top` holders by bytes, of `blocks` with their sizes. `all` is the sum over all of them.
pub fn top_holders(
    stacks: &StackReader<'_>,
    blocks: impl Iterator<Item = (HeldBlock, u64)>,
    all: BlockSum,
    top: usize,
) -> TopRows<Holder> {
    type Row = (LineId, Option<Category>);
    let mut sums: BlockSums<Row> = FxHashMap::default();
    let mut members: FxHashMap<Row, Vec<(HeldBlock, u64)>> = FxHashMap::default();
    for (block, sum) in sorted_by_bytes(sum_by_key(blocks)) {
        let line = stacks.line_id(block.stack).for_block(block.is_older);
        let row = (line, block.classification.map(|(category, _)| category));
        members.entry(row).or_default().push((block, sum.bytes));
        let total = sums.entry(row).or_default();
        *total = total.plus(sum);
    }
    top_rows(sums, all, top, |row @ (line, category), sum| {
        let members = &members[&row];
        let largest = largest_operation(members.iter().map(|(block, bytes)| (stacks.operation(block.stack), *bytes)));
        let mut confidence = ConfidenceBytes::default();
        for (block, bytes) in members {
            block.classification.into_iter().for_each(|(_, of_block)| confidence.add(of_block, *bytes));
        }
        Holder {
            bytes: sum.bytes,
            blocks: sum.blocks,
            share_ratio: ratio(sum.bytes, all.bytes),
            location: stacks.code_location(line),
            operation_share_ratio: largest.as_ref().map(|(_, bytes)| ratio(*bytes, sum.bytes)),
            operation: largest.map(|(operation, _)| operation),
            category,
            category_confidence: category.map(|_| confidence.of_half()),
        }
    })
}

/// The first `top` of `holders`, which are sorted.
pub fn first_holders(holders: &[Holder], all: BlockSum, top: usize) -> TopRows<Holder> {
    let rows: Vec<Holder> = holders.iter().take(top).cloned().collect();
    let sums = rows.iter().map(|row| BlockSum { bytes: row.bytes, blocks: row.blocks });
    TopRows { rest: sums.fold(all, BlockSum::minus), rows }
}

/// The operation with most bytes, and these bytes; the first one on a tie.
pub fn largest_operation(operations: impl Iterator<Item = (Option<String>, u64)>) -> Option<(String, u64)> {
    let mut sums: SeededMap<String, (u64, Reverse<usize>)> = SeededMap::default();
    for (at, (operation, bytes)) in operations.enumerate() {
        let Some(operation) = operation else { continue }; // the stack shows none
        let (sum, _) = sums.entry(operation).or_insert((0, Reverse(at)));
        *sum = sum.saturating_add(bytes);
    }
    sums.into_iter().max_by_key(|(_, sum_and_first)| *sum_and_first).map(|(operation, (bytes, _))| (operation, bytes))
}

/// Sums up the live blocks of `segments`, which are ranges of `all_blocks`, by stack.
pub fn sum_live_by_stack<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
) -> FxHashMap<StackId, BlockSum> {
    let blocks = segments.flat_map(|segment| segment.blocks_in(all_blocks));
    let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    sum_by_key(live.map(|block| (block.extended_stack, block.size)))
}
