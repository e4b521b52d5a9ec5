//! Who holds the memory: live blocks by the stack, and by the line, that allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::sums::{Sum, Sums, TopRows, ranked, summed, table};
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::base::units::ratio;
use crate::snapshot::{Block, BlockState, Segment};
use crate::stacks::frames::{CodeLocation, FrameList, LineId, StackReader};

/// Live memory that one stack allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldByStack {
    /// Bytes in its live blocks.
    pub bytes: u64,
    /// Its live blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
    /// The whole stack, innermost first; empty when none was recorded.
    pub frames: FrameList,
}

/// Live memory that one line of code allocated, called from one line of the user's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldByLine {
    /// Bytes in its live blocks.
    pub bytes: u64,
    /// Its live blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
    /// The innermost line that is not PyTorch's; `None` gathers stacks without one (autograd threads, no
    /// stack recorded).
    #[serde(flatten)]
    pub location: CodeLocation,
    /// What most of it was allocated for, as far as the stacks tell.
    pub operation: Option<String>,
    /// How much of the line's bytes that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_share_ratio: Option<f64>,
}

/// The `top` stacks that hold most, of blocks that are `all` together.
pub(crate) fn by_stack(
    stacks: &StackReader<'_>,
    held: Sums<StackId>,
    all: Sum,
    top: usize,
) -> TopRows<HeldByStack> {
    let recorded = held.into_iter().map(|(stack, sum)| (stacks.recorded_stack(stack), sum));
    let held = recorded.fold(Sums::default(), |mut held: Sums<StackId>, (stack, sum)| {
        let known = held.entry(stack).or_default();
        *known = known.and(sum);
        held
    });
    table(held, all, top, |stack, sum| HeldByStack {
        bytes: sum.bytes,
        blocks: sum.blocks,
        share_ratio: ratio(sum.bytes, all.bytes),
        frames: stacks.frame_list(stack),
    })
}

/// The `top` lines that hold most, of blocks that are `all` together.
pub(crate) fn by_line(
    stacks: &StackReader<'_>,
    held: Sums<StackId>,
    all: Sum,
    top: usize,
) -> TopRows<HeldByLine> {
    let mut lines: Sums<LineId> = FxHashMap::default();
    let mut members: FxHashMap<LineId, Vec<(StackId, u64)>> = FxHashMap::default();
    for (stack, sum) in ranked(held) {
        let line = stacks.line_id(stack);
        members.entry(line).or_default().push((stack, sum.bytes));
        let held = lines.entry(line).or_default();
        *held = held.and(sum);
    }
    table(lines, all, top, |line, sum| {
        let of_line = members.get(&line).map(Vec::as_slice).unwrap_or_default();
        let operations = of_line.iter().map(|(stack, bytes)| (stacks.operation(*stack), *bytes));
        let main = main_operation(operations);
        HeldByLine {
            bytes: sum.bytes,
            blocks: sum.blocks,
            share_ratio: ratio(sum.bytes, all.bytes),
            location: stacks.code_location(line),
            operation_share_ratio: main.as_ref().map(|(_, bytes)| ratio(*bytes, sum.bytes)),
            operation: main.map(|(operation, _)| operation),
        }
    })
}

/// Of operations with bytes, the one that most bytes are of, and how many; the first of equals.
pub(crate) fn main_operation(
    of: impl Iterator<Item = (Option<String>, u64)>,
) -> Option<(String, u64)> {
    let mut rows: SeededMap<String, usize> = SeededMap::default();
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (operation, bytes) in of {
        let Some(operation) = operation else { continue };
        let row = *rows.entry(operation).or_insert_with_key(|operation| {
            sums.push((operation.clone(), 0));
            sums.len() - 1
        });
        sums[row].1 = sums[row].1.saturating_add(bytes);
    }
    sums.into_iter().rev().max_by_key(|(_, bytes)| *bytes)
}

/// What each stack holds in the `segments` of some moment, whose blocks are rows of `all_blocks`.
pub fn live_by_stack<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
) -> FxHashMap<StackId, Sum> {
    let blocks = segments.flat_map(|s| all_blocks.get(s.blocks.clone()).unwrap_or_default());
    let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    summed(live.map(|block| (block.made_by, block.size)))
}
