//! Pairing the requests of one recording with those of another.
//!
//! Pairs have the same stack, keep their order, and have plausible bytes. If training steps are known, requests are
//! paired step by step; surplus steps are compared with the last completed step of the other recording. Stacks are
//! matched by [`crate::stacks::matching`], so that they survive an edited line or a moved file.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::align::align;
use super::input::{SizedRecording, SizedRequest};
use super::law::grows_by_power;
use super::steps::Steps;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::stacks::matching::{Candidate, FrameKey, FrameTable, pair_stacks};

/// Bytes of a pair without a stack grow with this power of the size at most.
const MAX_PAIRED_DEGREE: u32 = 2;

/// For each request and each initial block of one recording, the index of its pair in another.
#[derive(Debug, Default)]
pub(super) struct RecordingPairs {
    pub(super) requests: Vec<Option<u32>>,
    /// For each block from before the recording.
    pub(super) initial_blocks: Vec<Option<u32>>,
}

/// Pairs the requests and initial blocks of `base` with those of `other`.
pub(super) fn pair_recordings<'s, 'a>(base: &SizedRecording<'s, 'a>, other: &SizedRecording<'s, 'a>) -> RecordingPairs {
    let stack_numbers = number_stacks([base, other]);
    let [left_numbers, right_numbers] = &stack_numbers;
    let sequence_of = |recording: &SizedRecording<'_, '_>, stack_numbers: &FxHashMap<StackId, StackNumber>| {
        let number = |stack: StackId| stack_numbers.get(&stack).copied().unwrap_or(0);
        let paired_request =
            |request: &SizedRequest| PairedRequest { number: number(request.stack), bytes: request.bytes };
        // The buffers of reductions follow from their shapes.
        let kept = recording.requests.iter().enumerate().filter(|(_, request)| !request.is_scratch);
        let (indexes, requests) = kept.map(|(index, request)| (index, paired_request(request))).unzip();
        RequestSequence { size: recording.size, indexes, requests }
    };
    let sides = [sequence_of(base, left_numbers), sequence_of(other, right_numbers)];
    let steps = [Steps::from_recording(base), Steps::from_recording(other)];
    let kept = |side: usize, range: Range<usize>| {
        let at = |index: usize| sides[side].indexes.partition_point(|kept| *kept < index);
        at(range.start)..at(range.end)
    };
    let mut requests = vec![None; base.requests.len()];
    for (step, left_range) in steps[0].ranges.iter().enumerate() {
        let left_range = kept(0, left_range.clone());
        let mut best: Vec<(usize, usize)> = Vec::new();
        for right_range in steps[1].counterparts(step, &steps[0]) {
            let pairs = pair_in_order(&sides[0], left_range.clone(), &sides[1], kept(1, right_range));
            if pairs.len() > best.len() {
                best = pairs;
            }
            if best.len() == left_range.len() {
                break;
            }
        }
        for (left, right) in best {
            requests[sides[0].indexes[left]] = Some(to_u32(sides[1].indexes[right]));
        }
    }
    RecordingPairs { requests, initial_blocks: pair_initial_blocks([base, other], &stack_numbers) }
}

/// Numbers the stacks of both recordings such that matched stacks have the same number.
pub(super) fn number_stacks(sides: [&SizedRecording<'_, '_>; 2]) -> [FxHashMap<StackId, StackNumber>; 2] {
    let frame_table = FrameTable::new(sides.map(|side| side.device.snapshot()));
    // Different stacks of one recording may have the same frames.
    let mut ids = [0, 1].map(|_| FxHashMap::<StackId, usize>::default());
    let mut lists: [Vec<(Vec<FrameKey>, u64)>; 2] = Default::default();
    for (side, recording) in sides.into_iter().enumerate() {
        let mut index_by_frames: SeededMap<Vec<FrameKey>, usize> = SeededMap::default();
        let initial_blocks = recording.program().initial_blocks.iter().map(|block| block.context);
        let stacks = recording.requests.iter().map(|request| request.stack).chain(initial_blocks);
        for stack in stacks {
            let (ids, list) = (&mut ids[side], &mut lists[side]);
            let at = *ids.entry(stack).or_insert_with(|| {
                let frames = frame_table.stack_keys(side, recording.device.snapshot(), stack);
                *index_by_frames.entry(frames.clone()).or_insert_with(|| {
                    list.push((frames, 0));
                    list.len() - 1
                })
            });
            list[at].1 += 1;
        }
    }
    let candidates = lists.each_ref().map(|list| {
        list.iter()
            .map(|(places, weight)| Candidate { frames: places, weight: *weight })
            .collect::<Vec<Candidate<'_>>>()
    });
    let mut numbers = lists.each_ref().map(|list| vec![0; list.len()]);
    for (number, pair) in pair_stacks(&candidates[0], &candidates[1], &frame_table).iter().enumerate() {
        for (numbers, at) in numbers.iter_mut().zip(pair.rows) {
            if let Some(number_of) = at.and_then(|at| numbers.get_mut(at)) {
                *number_of = to_u32(number);
            }
        }
    }
    [0, 1].map(|side| ids[side].iter().map(|(stack, row)| (*stack, numbers[side][*row])).collect())
}

pub(super) type StackNumber = u32;

#[derive(Debug, Clone, Copy)]
struct PairedRequest {
    number: StackNumber,
    bytes: u64,
}

/// The requests of one recording.
struct RequestSequence {
    size: u64,
    /// The index of each in the recording.
    indexes: Vec<usize>,
    requests: Vec<PairedRequest>,
}

/// Pairs indexes in order: requests of the same stack whose bytes are equal or grow with a power of the size. Threads of a
/// backward pass have no stack, so only their bytes distinguish their requests.
fn pair_in_order(
    base: &RequestSequence,
    left_range: Range<usize>,
    other: &RequestSequence,
    right_range: Range<usize>,
) -> Vec<(usize, usize)> {
    let (left, right) = (&base.requests[left_range.clone()], &other.requests[right_range.clone()]);
    let is_same_stack = |a: usize, b: usize| left[a].number == right[b].number;
    let shift = |(a, b): (usize, usize)| (a + left_range.start, b + right_range.start);
    let pair_rest = |pairs| pair_between(pairs, [left.len(), right.len()], is_same_stack);
    let grows = |a: usize, b: usize| {
        let points = [(base.size, left[a].bytes), (other.size, right[b].bytes)];
        is_same_stack(a, b) && grows_by_power(MAX_PAIRED_DEGREE, points[0], points[1])
    };
    let mut pairs = pair_rest(Vec::new());
    if pairs.is_empty() {
        pairs = pair_rest(align(left.len(), right.len(), grows).unwrap_or_default());
    }
    pairs.into_iter().map(shift).collect()
}

/// Adds the requests between two pairs, if there are as many of the same stacks on both sides: bytes that the data
/// decides grow with no power.
fn pair_between(
    sure_pairs: Vec<(usize, usize)>,
    lens: [usize; 2],
    is_same_stack: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut pairs = Vec::with_capacity(sure_pairs.len());
    let mut next = (0, 0);
    for (left, right) in sure_pairs.into_iter().chain([(lens[0], lens[1])]) {
        let between = (next.0..left).zip(next.1..right);
        if left - next.0 == right - next.1 && between.clone().all(|(left, right)| is_same_stack(left, right)) {
            pairs.extend(between);
        }
        pairs.push((left, right));
        next = (left + 1, right + 1);
    }
    pairs.pop();
    pairs
}

/// For each initial block of the first recording, its pair in the second: a block of the same stack with the same
/// bytes, or with bytes in proportion to the size. Then, if a stack has equally many unpaired
/// blocks on both sides, these are paired in order of their bytes.
fn pair_initial_blocks(
    sides: [&SizedRecording<'_, '_>; 2],
    stack_numbers: &[FxHashMap<StackId, StackNumber>; 2],
) -> Vec<Option<u32>> {
    let mut groups: FxHashMap<StackNumber, [Vec<(u64, u32)>; 2]> = FxHashMap::default();
    for (side, recording) in sides.into_iter().enumerate() {
        for (index, block) in recording.program().initial_blocks.iter().enumerate() {
            let stack_number = stack_numbers[side].get(&block.context).copied().unwrap_or(0);
            groups.entry(stack_number).or_default()[side].push((block.requested, to_u32(index)));
        }
    }
    let mut pairs = vec![None; sides[0].program().initial_blocks.len()];
    for mut unpaired in groups.into_values() {
        for side in &mut unpaired {
            side.sort_unstable();
        }
        for scale in [[1, 1], sides.map(|side| u128::from(side.size))] {
            pair_scaled(&mut unpaired, scale, &mut pairs);
        }
        if unpaired[0].len() == unpaired[1].len() {
            for ((_, left), (_, right)) in unpaired[0].iter().zip(&unpaired[1]) {
                pairs[*left as usize] = Some(*right);
            }
        }
    }
    pairs
}

/// Pairs blocks whose bytes have the ratio `scale`, and removes them from both sorted lists.
fn pair_scaled(blocks: &mut [Vec<(u64, u32)>; 2], scale: [u128; 2], pairs: &mut [Option<u32>]) {
    let [left, right] = blocks;
    let (mut unpaired_left, mut unpaired_right) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let scaled = [u128::from(x.0) * scale[1], u128::from(y.0) * scale[0]];
        match scaled[0].cmp(&scaled[1]) {
            std::cmp::Ordering::Less => unpaired_left.extend(a.next().copied()),
            std::cmp::Ordering::Greater => unpaired_right.extend(b.next().copied()),
            std::cmp::Ordering::Equal => {
                pairs[x.1 as usize] = Some(y.1);
                a.next();
                b.next();
            }
        }
    }
    unpaired_left.extend(a);
    unpaired_right.extend(b);
    (*left, *right) = (unpaired_left, unpaired_right);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_between_two_pairs_are_pairs() {
        let pairs = |is_same: fn(usize, usize) -> bool| pair_between(vec![(1, 1), (4, 5)], [6, 7], is_same);
        assert_eq!(pairs(|_, _| true), [(0, 0), (1, 1), (4, 5), (5, 6)]);
        assert_eq!(pairs(|left, _| left > 0), [(1, 1), (4, 5), (5, 6)]);
    }
}
