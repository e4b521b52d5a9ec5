//! Who holds the memory: live blocks by the stack, and by the line, that allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::sums::{Sum, Sums, TopRows, ranked, summed, table};
use crate::frames::{FrameList, FrameReport, StackReader};
use crate::ids::{FrameId, StackId};
use crate::snapshot::{Block, BlockState, Segment};
use crate::units::ratio;

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

/// Live memory that one line of the user's code allocated, by whatever way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldByLine {
    /// Bytes in its live blocks.
    pub bytes: u64,
    /// Its live blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
    /// The line; `None` gathers stacks without one (autograd threads, no stack recorded).
    pub frame: Option<FrameReport>,
    /// What the largest of its stacks was doing, as far as the stack tells.
    pub operation: Option<String>,
}

/// The `top` stacks that hold most, of blocks that are `all` together.
pub(crate) fn by_stack(
    stacks: &StackReader<'_>,
    held: Sums<StackId>,
    all: Sum,
    top: usize,
) -> TopRows<HeldByStack> {
    table(held, all, top, |stack, sum| HeldByStack {
        bytes: sum.bytes,
        blocks: sum.blocks,
        share_ratio: ratio(sum.bytes, all.bytes),
        frames: stacks.whole(stack),
    })
}

/// The `top` lines that hold most, of blocks that are `all` together.
pub(crate) fn by_line(
    stacks: &StackReader<'_>,
    held: Sums<StackId>,
    all: Sum,
    top: usize,
) -> TopRows<HeldByLine> {
    let mut lines: Sums<Option<FrameId>> = FxHashMap::default();
    let mut largest: FxHashMap<Option<FrameId>, StackId> = FxHashMap::default();
    for (stack, sum) in ranked(held) {
        let line = stacks.culprit_id(stack);
        largest.entry(line).or_insert(stack);
        let held = lines.entry(line).or_default();
        *held = held.and(sum);
    }
    table(lines, all, top, |line, sum| {
        let stack = largest.get(&line).copied().unwrap_or_default();
        HeldByLine {
            bytes: sum.bytes,
            blocks: sum.blocks,
            share_ratio: ratio(sum.bytes, all.bytes),
            frame: line.and_then(|_| stacks.culprit(stack)),
            operation: stacks.operation(stack),
        }
    })
}

/// What each stack holds in the `segments` of some moment, whose blocks are rows of `all_blocks`.
pub fn live_by_stack<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    all_blocks: &[Block],
) -> FxHashMap<StackId, Sum> {
    let blocks = segments.flat_map(|s| all_blocks.get(s.blocks.clone()).unwrap_or_default());
    let live = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
    summed(live.map(|block| (block.stack, block.size)))
}
