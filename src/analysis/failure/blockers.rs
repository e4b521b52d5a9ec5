//! Which blocks in use keep free memory from being used or given back.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::allocator::whole_granules;
use crate::base::ids::StackId;
use crate::replay::literal::{ContiguousRange, RangeBlock, Tiling};
use crate::snapshot::BlockState;
use crate::stacks::frames::{CodeLocation, Culprit, FrameList, StackReader};

/// Blockers that are listed.
const SHOWN: usize = 5;
/// A stack that unlocks less than this part of all that is locked is not worth a look.
const LEAST_PART: u64 = 100;

/// Live blocks that keep free space from being used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// Free bytes that would be joined or released without them.
    pub bytes_unlocked: u64,
    /// Those of them that could go back to the device.
    pub bytes_released: u64,
    /// How many.
    pub blocks: u64,
    /// Their own bytes.
    pub bytes_held: u64,
    /// The innermost line in that stack that is not PyTorch's.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
    /// What was being done there.
    pub operation: Option<String>,
    /// The stack that allocated them.
    pub frames: FrameList,
}

#[derive(Default)]
struct Locked {
    unlocked: u64,
    released: u64,
    blocks: u64,
    bytes: u64,
}

/// By stack: free memory beside its blocks, which would be joined or released without them. Those come
/// first that unlock most for each byte they hold.
pub(super) fn blockers(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<Blocker> {
    let mut held: BTreeMap<StackId, Locked> = BTreeMap::new();
    let mut locked = 0u64;
    for stretch in tiling.contiguous_ranges().filter(|stretch| stretch.blocks.len() > 1) {
        locked += stretch.blocks.iter().filter(|b| is_free(b)).map(|b| b.size).sum::<u64>();
        in_stretch(&stretch, &mut held);
    }
    let mut worth: Vec<(StackId, Locked)> = held
        .into_iter()
        .filter(|(_, one)| one.bytes > 0 && one.unlocked.saturating_mul(LEAST_PART) >= locked)
        .collect();
    // a / b > c / d, without dividing.
    let scale = |a: &Locked, b: &Locked| u128::from(a.unlocked) * u128::from(b.bytes);
    worth.sort_by(|(_, a), (_, b)| scale(b, a).cmp(&scale(a, b)).then(b.unlocked.cmp(&a.unlocked)));
    worth.truncate(SHOWN);
    let report = |(stack, one): (StackId, Locked)| {
        let location = stacks.code_location(stacks.line_id(stack));
        Blocker {
            bytes_unlocked: one.unlocked,
            bytes_released: one.released,
            blocks: one.blocks,
            bytes_held: one.bytes,
            location,
            operation: stacks.operation(stack),
            frames: stacks.frame_list(stack),
        }
    };
    worth.into_iter().map(report).collect()
}

fn is_free(block: &RangeBlock) -> bool {
    block.state == BlockState::Inactive
}

/// Adds what the blocks of each stack lock in one stretch.
fn in_stretch(stretch: &ContiguousRange, held: &mut BTreeMap<StackId, Locked>) {
    let blocks = &stretch.blocks;
    let used: Vec<(usize, &RangeBlock)> =
        blocks.iter().enumerate().filter(|(_, b)| !is_free(b)).collect();
    let mut of_one_stack = used.chunk_by(|(_, a), (_, b)| a.stack == b.stack).peekable();
    let mut from = 0;
    while let Some(own @ &[(_, first), ..]) = of_one_stack.next() {
        let next = of_one_stack.peek().and_then(|next| next.first());
        let to = next.map_or(blocks.len(), |(index, _)| *index);
        let run = blocks.get(from..to).unwrap_or_default();
        add_run(run, stretch, held.entry(first.stack).or_default());
        from = own.last().map_or(from, |(index, _)| index + 1);
    }
}

/// Adds what the blocks of a run lock in it: what would be free without them, end to end.
fn add_run(run: &[RangeBlock], stretch: &ContiguousRange, held: &mut Locked) {
    let granule = stretch.granule;
    let given_back = if stretch.is_private { 0..0 } else { granules(run, granule) };
    for block in run.iter().filter(|block| is_free(block)) {
        held.unlocked += block.size;
        let alone = granules(std::slice::from_ref(block), granule);
        held.released +=
            overlap(&given_back, &(block.offset..block.end())) - overlap(&given_back, &alone);
    }
    add_in_the_way(run, granule, &given_back, held);
}

/// Adds the blocks of a run that lock something, when the whole of `given_back` would go back without them.
fn add_in_the_way(run: &[RangeBlock], granule: u64, given_back: &Range<u64>, held: &mut Locked) {
    // The free block before each, and the one after.
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
        // Beside free memory, or in a granule with some that would go back.
        let first = block.offset / granule * granule;
        let last = block.end().div_ceil(granule).saturating_mul(granule);
        let common = first.max(given_back.start)..last.min(given_back.end);
        let reaches = |before: u64, after: u64| {
            free_before.is_some_and(|end| end >= before) || free_after.is_some_and(|at| at <= after)
        };
        let is_joined = !common.is_empty() && reaches(common.start + 1, common.end - 1);
        if reaches(block.offset, block.end()) || is_joined {
            held.blocks += 1;
            held.bytes += block.size;
        }
    }
}

/// The whole granules in blocks that lie end to end.
fn granules(run: &[RangeBlock], granule: u64) -> Range<u64> {
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

    /// What each stack holds and locks: `blocks`, `bytes`, `unlocked`, `released`.
    fn locked(blocks: &[(u32, u64)], granule: u64) -> Vec<(u32, [u64; 4])> {
        let mut offset = 0;
        let laid = |&(stack, size): &(u32, u64)| {
            let state =
                if stack == FREE { BlockState::Inactive } else { BlockState::ActiveAllocated };
            offset += size;
            RangeBlock { offset: offset - size, size, state, stack: StackId(stack) }
        };
        let blocks = blocks.iter().map(laid).collect();
        let mut held = BTreeMap::new();
        in_stretch(&ContiguousRange { blocks, granule, is_private: false }, &mut held);
        let told =
            |(stack, h): (StackId, Locked)| (stack.0, [h.blocks, h.bytes, h.unlocked, h.released]);
        held.into_iter().map(told).collect()
    }

    #[test]
    fn a_segment_goes_back_without_the_only_stack_in_it() {
        assert_eq!(locked(&[(7, 1), (FREE, 99)], 100), [(7, [1, 1, 99, 99])]);
        // The second block is beside nothing free, and all the same in the way of the segment.
        let alone = [(FREE, 40), (7, 5), (7, 5), (7, 10), (FREE, 40)];
        assert_eq!(locked(&alone, 100), [(7, [3, 20, 80, 80])]);
        let shared = [(FREE, 40), (7, 5), (7, 5), (8, 10), (FREE, 40)];
        assert_eq!(locked(&shared, 100), [(7, [1, 5, 40, 0]), (8, [1, 10, 40, 0])]);
    }

    #[test]
    fn an_expandable_segment_goes_back_by_granules() {
        // Granules of 20; of the first free block 10 to 40, 20 to 40 are free by themselves.
        let blocks = [(7, 10), (FREE, 30), (7, 30), (7, 5), (FREE, 5), (8, 20)];
        assert_eq!(locked(&blocks, 20), [(7, [3, 45, 35, 15]), (8, [1, 20, 5, 0])]);
        // Far from anything free a block is in nobody's way.
        assert_eq!(locked(&[(7, 20), (7, 25), (FREE, 15)], 20), [(7, [1, 25, 15, 15])]);
    }
}
