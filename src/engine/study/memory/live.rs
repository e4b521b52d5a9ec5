//! Live blocks by the stack, and by the source line, that allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::sums::{BlockSum, BlockSums, TopRows, sorted_by_bytes, sum_by_key, top_rows};
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::base::units::ratio;
use crate::snapshot::{Block, BlockState, Segment};
use crate::stacks::frames::{CodeLocation, FrameList, LineId, StackReader};
use crate::study::category::{Category, Confidence};

/// Live blocks that one stack allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveByStack {
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// The whole stack, innermost frame first; empty if none was recorded.
    #[serde(flatten)]
    pub frames: FrameList,
}

/// Live blocks that one source line allocated, with one caller.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveByLine {
    /// Bytes in these blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Share of all allocated bytes, 0 to 1.
    pub share_ratio: f64,
    /// The line; one row gathers all stacks without a line.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operation that allocated most of these bytes; null if no stack shows one.
    pub operation: Option<String>,
    /// Share of `bytes` that `operation` allocated, 0 to 1; absent without `operation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_share_ratio: Option<f64>,
    /// The category that most of these bytes have; absent where memory is not attributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The confidence in `category`; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category_confidence: Option<Confidence>,
}

/// The `top` stacks by live bytes. `all` is the sum over all of `live`.
pub fn top_stacks(
    stacks: &StackReader<'_>,
    live: BlockSums<StackId>,
    all: BlockSum,
    top: usize,
) -> TopRows<LiveByStack> {
    let recorded = live.into_iter().map(|(stack, sum)| (stacks.recorded_stack(stack), sum));
    let live = recorded.fold(BlockSums::default(), |mut sums: BlockSums<StackId>, (stack, sum)| {
        let total = sums.entry(stack).or_default();
        *total = total.plus(sum);
        sums
    });
    top_rows(live, all, top, |stack, sum| LiveByStack {
        bytes: sum.bytes,
        blocks: sum.blocks,
        share_ratio: ratio(sum.bytes, all.bytes),
        frames: stacks.frame_list(stack),
    })
}

/// The `top` lines by live bytes. `all` is the sum over all of `live`; `category_of` has the category of each line.
pub fn top_lines(
    stacks: &StackReader<'_>,
    live: BlockSums<StackId>,
    all: BlockSum,
    top: usize,
    category_of: &dyn Fn(LineId) -> Option<(Category, Confidence)>,
) -> TopRows<LiveByLine> {
    let mut lines: BlockSums<LineId> = FxHashMap::default();
    let mut members: FxHashMap<LineId, Vec<(StackId, u64)>> = FxHashMap::default();
    for (stack, sum) in sorted_by_bytes(live) {
        let line = stacks.line_id(stack);
        members.entry(line).or_default().push((stack, sum.bytes));
        let total = lines.entry(line).or_default();
        *total = total.plus(sum);
    }
    top_rows(lines, all, top, |line, sum| {
        let operations = members[&line].iter().map(|(stack, bytes)| (stacks.operation(*stack), *bytes));
        let largest = largest_operation(operations);
        let (category, category_confidence) = category_of(line).unzip();
        LiveByLine {
            bytes: sum.bytes,
            blocks: sum.blocks,
            share_ratio: ratio(sum.bytes, all.bytes),
            location: stacks.code_location(line),
            operation_share_ratio: largest.as_ref().map(|(_, bytes)| ratio(*bytes, sum.bytes)),
            operation: largest.map(|(operation, _)| operation),
            category,
            category_confidence,
        }
    })
}

/// The operation with most bytes, and these bytes; the first one on a tie.
pub fn largest_operation(operations: impl Iterator<Item = (Option<String>, u64)>) -> Option<(String, u64)> {
    let mut rows: SeededMap<String, usize> = SeededMap::default();
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (operation, bytes) in operations {
        let Some(operation) = operation else { continue }; // the stack shows none
        let row = *rows.entry(operation).or_insert_with_key(|operation| {
            sums.push((operation.clone(), 0));
            sums.len() - 1
        });
        sums[row].1 = sums[row].1.saturating_add(bytes);
    }
    sums.into_iter().rev().max_by_key(|(_, bytes)| *bytes)
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
