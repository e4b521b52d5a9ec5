//! Finds live blocks that keep free memory from being joined or released.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::allocator::whole_granules;
use crate::base::ids::StackId;
use crate::replay::literal::{ContiguousRange, RangeBlock, Tiling};
use crate::snapshot::BlockState;
use crate::stacks::frames::{CodeLocation, Culprit, FrameList, LineId, StackReader};

/// Maximum number of blockers in a report.
const SHOWN_BLOCKERS: usize = 5;
/// A line is reported if it unlocks at least the total locked memory divided by this.
const MIN_LOCKED_FRACTION: u64 = 100;

/// Live blocks of one source line that keep free memory from being used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// Free bytes that could be joined or released without these blocks.
    pub bytes_unlocked: u64,
    /// The part of `bytes_unlocked` that could be released to the device.
    pub bytes_released: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Size of the blocks in bytes.
    pub bytes_held: u64,
    /// The innermost line outside PyTorch in the stack that allocated them.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
    /// The operation that allocated the first of them; null if its stack shows none.
    pub operation: Option<String>,
    /// The stack that allocated the first of them.
    #[serde(flatten)]
    pub frames: FrameList,
}

/// The lines whose blocks lock free memory: those that unlock most per byte held, by unlocked bytes, descending.
pub(super) fn blockers(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<Blocker> {
    // The key is the first stack of a line.
    let mut by_stack: BTreeMap<StackId, Blocker> = BTreeMap::new();
    let mut locked = 0u64;
    let mut lines = FirstStacks::default();
    for mut range in tiling.contiguous_ranges().filter(|range| range.blocks.len() > 1) {
        locked += range.blocks.iter().filter(|b| is_free(b)).map(|b| b.size).sum::<u64>();
        for block in range.blocks.iter_mut().filter(|block| !is_free(block)) {
            block.stack = lines.first_stack(block.stack, stacks);
        }
        add_contiguous_range(&range, &mut by_stack);
    }
    let relevant = by_stack.into_iter().filter(|(_, line)| line.bytes_held > 0);
    let relevant = relevant.filter(|(_, line)| line.bytes_unlocked.saturating_mul(MIN_LOCKED_FRACTION) >= locked);
    let mut relevant: Vec<(StackId, Blocker)> = relevant.collect();
    relevant.sort_by(|(_, a), (_, b)| {
        // Compares a / b with c / d as a * d with c * b.
        let [less, more] = [(b, a), (a, b)].map(|(a, b)| u128::from(a.bytes_unlocked) * u128::from(b.bytes_held));
        less.cmp(&more).then(b.bytes_unlocked.cmp(&a.bytes_unlocked))
    });
    relevant.truncate(SHOWN_BLOCKERS);
    relevant.sort_by_key(|(_, line)| Reverse(line.bytes_unlocked));
    let blockers = relevant.into_iter().map(|(stack, line)| Blocker {
        location: stacks.location_of(stack),
        operation: stacks.operation(stack),
        frames: stacks.frame_list(stack),
        ..line
    });
    blockers.collect()
}

/// For each stack, the first one that was seen with the same line.
#[derive(Default)]
struct FirstStacks {
    of_stack: FxHashMap<StackId, StackId>,
    of_line: FxHashMap<LineId, StackId>,
}

impl FirstStacks {
    fn first_stack(&mut self, stack: StackId, stacks: &StackReader<'_>) -> StackId {
        *self.of_stack.entry(stack).or_insert_with(|| *self.of_line.entry(stacks.line_id(stack)).or_insert(stack))
    }
}

fn is_free(block: &RangeBlock) -> bool {
    block.state == BlockState::Inactive
}

/// Adds the memory that each stack's blocks lock in one contiguous range.
fn add_contiguous_range(range: &ContiguousRange, by_stack: &mut BTreeMap<StackId, Blocker>) {
    let blocks = &range.blocks;
    let active: Vec<(usize, &RangeBlock)> = blocks.iter().enumerate().filter(|(_, b)| !is_free(b)).collect();
    let mut same_stack = active.chunk_by(|(_, a), (_, b)| a.stack == b.stack).peekable();
    let mut start = 0;
    while let Some(chunk @ &[(_, first), ..]) = same_stack.next() {
        let end = same_stack.peek().and_then(|next| next.first()).map_or(blocks.len(), |(index, _)| *index);
        let run = blocks.get(start..end).unwrap_or_default(); // `start <= end`: never out of bounds
        add_run(run, range, by_stack.entry(first.stack).or_default());
        start = chunk.last().map_or(start, |(index, _)| index + 1);
    }
}

/// Adds the memory that a run locks: one stack's consecutive blocks with the free blocks around them.
fn add_run(run: &[RangeBlock], range: &ContiguousRange, locked: &mut Blocker) {
    let granule = range.granule;
    // The memory that could be released without the run's blocks.
    let releasable = if range.is_private { 0..0 } else { whole_granules_of(run, granule) };
    for block in run.iter().filter(|block| is_free(block)) {
        locked.bytes_unlocked += block.size;
        let alone = whole_granules_of(std::slice::from_ref(block), granule);
        locked.bytes_released += overlap(&releasable, &(block.offset..block.end())) - overlap(&releasable, &alone);
    }
    add_locking_blocks(run, granule, &releasable, locked);
}

/// Counts the blocks of a run that lock memory, if `releasable` could be released without them.
fn add_locking_blocks(run: &[RangeBlock], granule: u64, releasable: &Range<u64>, locked: &mut Blocker) {
    // For each block, the start of the next free block.
    let mut free_after = vec![None; run.len()];
    let mut next = None;
    for (block, after) in run.iter().zip(&mut free_after).rev() {
        *after = next;
        next = if is_free(block) { Some(block.offset) } else { next };
    }
    let mut free_before = None;
    for (block, free_after) in run.iter().zip(free_after) {
        if is_free(block) {
            free_before = Some(block.end());
            continue;
        }
        // It touches free memory, or shares a granule with free memory that could be released.
        let first = block.offset / granule * granule;
        let last = block.end().div_ceil(granule).saturating_mul(granule);
        let common = first.max(releasable.start)..last.min(releasable.end);
        let is_adjacent =
            free_before.is_some_and(|end| end >= block.offset) || free_after.is_some_and(|at| at <= block.end());
        let is_joined = !common.is_empty()
            && (free_before.is_some_and(|end| end > common.start) || free_after.is_some_and(|at| at < common.end));
        if is_adjacent || is_joined {
            locked.blocks += 1;
            locked.bytes_held += block.size;
        }
    }
}

/// The whole granules in consecutive blocks.
fn whole_granules_of(run: &[RangeBlock], granule: u64) -> Range<u64> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return 0..0 };
    whole_granules(&(first.offset..last.end()), granule)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u32 = 0;

    /// `[blocks, bytes, unlocked, released]` of each stack.
    fn locked(blocks: &[(u32, u64)], granule: u64) -> Vec<(u32, [u64; 4])> {
        let mut offset = 0;
        let blocks = blocks.iter().map(|&(stack, size)| {
            let state = if stack == FREE { BlockState::Inactive } else { BlockState::ActiveAllocated };
            offset += size;
            RangeBlock { offset: offset - size, size, state, stack: StackId(stack) }
        });
        let mut by_stack = BTreeMap::new();
        let range = ContiguousRange { blocks: blocks.collect(), granule, is_private: false };
        add_contiguous_range(&range, &mut by_stack);
        let rows = by_stack.into_iter();
        rows.map(|(stack, m)| (stack.0, [m.blocks, m.bytes_held, m.bytes_unlocked, m.bytes_released])).collect()
    }

    #[test]
    fn a_segment_is_released_without_the_only_stack_in_it() {
        assert_eq!(locked(&[(7, 1), (FREE, 99)], 100), [(7, [1, 1, 99, 99])]);
        // The second block touches no free memory, but still keeps the segment.
        let alone = [(FREE, 40), (7, 5), (7, 5), (7, 10), (FREE, 40)];
        assert_eq!(locked(&alone, 100), [(7, [3, 20, 80, 80])]);
        let shared = [(FREE, 40), (7, 5), (7, 5), (8, 10), (FREE, 40)];
        assert_eq!(locked(&shared, 100), [(7, [1, 5, 40, 0]), (8, [1, 10, 40, 0])]);
    }

    #[test]
    fn an_expandable_segment_is_released_by_granules() {
        // Granules are 20 long. The first free block is 10..40, of which 20..40 can be released anyway.
        let blocks = [(7, 10), (FREE, 30), (7, 30), (7, 5), (FREE, 5), (8, 20)];
        assert_eq!(locked(&blocks, 20), [(7, [3, 45, 35, 15]), (8, [1, 20, 5, 0])]);
        // A block away from free memory locks nothing.
        assert_eq!(locked(&[(7, 20), (7, 25), (FREE, 15)], 20), [(7, [1, 25, 15, 15])]);
    }
}
