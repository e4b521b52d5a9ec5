//! Pairing the requests of one recording with those of another; and which of them change their size from step to step.
//!
//! Pairs have the same stack, keep their order, and have plausible bytes. If training steps are known, requests are
//! paired step by step; surplus steps are compared with the last completed step of the other recording. Stacks are
//! matched by [`crate::stacks::matching`], so that they survive an edited line or a moved file.

use std::ops::Range;

use itertools::{EitherOrBoth, Itertools as _};
use rustc_hash::FxHashMap;

use super::input::SizedRecording;
use super::law::grows_by_power;
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
    let steps = [Steps::from_recording(base), Steps::from_recording(other)];
    let mut requests = vec![None; base.requests.len()];
    for (step, left_range) in steps[0].ranges.iter().enumerate() {
        let left = requests_to_pair(base, left_range.clone(), left_numbers);
        let mut best: Vec<(usize, usize)> = Vec::new();
        for right_range in steps[1].counterparts(step, &steps[0]) {
            let right = requests_to_pair(other, right_range, right_numbers);
            let pairs = pair_in_order((base.size, &left), (other.size, &right));
            if pairs.len() > best.len() {
                best = pairs;
            }
            if best.len() == left.len() {
                break;
            }
        }
        for (left, right) in best {
            requests[left] = Some(to_u32(right));
        }
    }
    RecordingPairs { requests, initial_blocks: pair_initial_blocks([base, other], &stack_numbers) }
}

/// The requests in `range`, without the buffers of reductions, which follow from their shapes.
fn requests_to_pair(
    recording: &SizedRecording<'_, '_>,
    range: Range<usize>,
    numbers: &FxHashMap<StackId, StackNumber>,
) -> Vec<PairedRequest> {
    let requests = recording.requests[range.clone()].iter().zip(range).filter(|(request, _)| !request.is_scratch);
    let numbered = requests.map(|(request, index)| {
        let number = numbers.get(&request.stack).copied().unwrap_or(0);
        PairedRequest { index, number, bytes: request.bytes }
    });
    numbered.collect()
}

/// Numbers the stacks of both recordings such that matched stacks have the same number.
fn number_stacks(sides: [&SizedRecording<'_, '_>; 2]) -> [FxHashMap<StackId, StackNumber>; 2] {
    let frame_table = FrameTable::new(sides.map(|side| side.device.snapshot()));
    // Different stacks of one recording may have the same frames.
    let mut ids = [0, 1].map(|_| FxHashMap::<StackId, usize>::default());
    let mut lists: [Vec<(Vec<FrameKey>, u64)>; 2] = Default::default();
    for (side, recording) in sides.into_iter().enumerate() {
        let mut index_by_frames: SeededMap<Vec<FrameKey>, usize> = SeededMap::default();
        let initial_blocks = recording.device.program().initial_blocks.iter().map(|block| block.context);
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
        let candidates = list.iter().map(|(frames, weight)| Candidate { frames, weight: *weight });
        candidates.collect::<Vec<_>>()
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

type StackNumber = u32;

#[derive(Debug, Clone, Copy)]
struct PairedRequest {
    /// Its index in the recording.
    index: usize,
    number: StackNumber,
    bytes: u64,
}

/// Pairs requests in order, and returns their indexes: those of the same stack whose bytes are equal or grow with a power
/// of the size. Threads of a backward pass have no stack, so only their bytes distinguish their requests.
fn pair_in_order(
    (left_size, left): (u64, &[PairedRequest]),
    (right_size, right): (u64, &[PairedRequest]),
) -> Vec<(usize, usize)> {
    let mut pairs = pair_between(Vec::new(), left, right);
    if pairs.is_empty() {
        let aligned = align(left.len(), right.len(), |a, b| {
            left[a].number == right[b].number
                && grows_by_power(MAX_PAIRED_DEGREE, (left_size, left[a].bytes), (right_size, right[b].bytes))
        });
        pairs = pair_between(aligned.unwrap_or_default(), left, right);
    }
    pairs.into_iter().map(|(a, b)| (left[a].index, right[b].index)).collect()
}

/// Adds the requests between two pairs, if there are as many of the same stacks on both sides: bytes that the data
/// decides grow with no power.
fn pair_between(sure: Vec<(usize, usize)>, left: &[PairedRequest], right: &[PairedRequest]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::with_capacity(sure.len());
    let mut next = (0, 0);
    for end in sure.into_iter().chain([(left.len(), right.len())]) {
        let between = (next.0..end.0).zip(next.1..end.1);
        if end.0 - next.0 == end.1 - next.1 && between.clone().all(|(a, b)| left[a].number == right[b].number) {
            pairs.extend(between);
        }
        pairs.push(end);
        next = (end.0 + 1, end.1 + 1);
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
        for (index, block) in recording.device.program().initial_blocks.iter().enumerate() {
            let stack_number = stack_numbers[side].get(&block.context).copied().unwrap_or(0);
            groups.entry(stack_number).or_default()[side].push((block.requested, to_u32(index)));
        }
    }
    let mut pairs = vec![None; sides[0].device.program().initial_blocks.len()];
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
    let [left, right] = std::mem::take(blocks);
    let in_ratio = left.into_iter().merge_join_by(right, |(left, _), (right, _)| {
        (u128::from(*left) * scale[1]).cmp(&(u128::from(*right) * scale[0]))
    });
    for item in in_ratio {
        match item {
            EitherOrBoth::Both((_, left), (_, right)) => pairs[left as usize] = Some(right),
            EitherOrBoth::Left(unpaired) => blocks[0].push(unpaired),
            EitherOrBoth::Right(unpaired) => blocks[1].push(unpaired),
        }
    }
}

/// The search stops at this many unpaired elements, because its cost grows with their number.
const MAX_UNPAIRED: usize = 2048;

/// Pairs the indexes of two lists, in order and as many as possible, such that `are_paired` holds; `None` if too many
/// elements remain unpaired. Uses the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its Variations"
/// (1986), which needs no transitive relation.
fn align(left_len: usize, right_len: usize, are_paired: impl Fn(usize, usize) -> bool) -> Option<Vec<(usize, usize)>> {
    let max_unpaired = MAX_UNPAIRED.min(left_len + right_len);
    // On each diagonal, `left - right`, after a number of unpaired elements: the furthest index of the left list, and the last
    // run of pairs on the way there.
    let mut furthest: Vec<(usize, Option<usize>)> = vec![(0, None); 2 * max_unpaired + 3];
    let mut runs: Vec<PairedRun> = Vec::new();
    let mut last_run = 'search: {
        for unpaired in 0..=max_unpaired.cast_signed() {
            for diagonal in (-unpaired..=unpaired).step_by(2) {
                let at = (diagonal + max_unpaired.cast_signed() + 1).cast_unsigned();
                let [below, above] = [furthest[at - 1], furthest[at + 1]];
                // From the diagonal above by skipping an element of the right list.
                let is_from_above = diagonal == -unpaired || (diagonal != unpaired && below.0 < above.0);
                let (left, before) = if is_from_above { above } else { (below.0 + 1, below.1) };
                let Some(right) = left.checked_add_signed(-diagonal) else { continue };
                let equal =
                    (left..left_len).zip(right..right_len).take_while(|(left, right)| are_paired(*left, *right));
                let len = equal.count();
                if len > 0 {
                    runs.push(PairedRun { left, right, len, before });
                }
                let run = if len > 0 { Some(runs.len() - 1) } else { before };
                furthest[at] = (left + len, run);
                if left + len >= left_len && right + len >= right_len {
                    break 'search run;
                }
            }
        }
        return None;
    };
    let mut pairs = Vec::new();
    while let Some(run) = last_run {
        let PairedRun { left, right, len, before } = runs[run];
        pairs.extend((0..len).rev().map(|index| (left + index, right + index)));
        last_run = before;
    }
    pairs.reverse();
    Some(pairs)
}

/// Pairs in a row from two indexes on, and the run before it.
struct PairedRun {
    left: usize,
    right: usize,
    len: usize,
    before: Option<usize>,
}

/// The requests of a recording, step by step.
pub(super) struct Steps {
    /// The requests before the first step, of each completed step, and after the last completed step.
    ranges: Vec<Range<usize>>,
}

impl Steps {
    pub(super) fn from_recording(recording: &SizedRecording<'_, '_>) -> Self {
        let phases = recording.device.phases();
        let ends = phases.steps.ends().iter().map(|end| *end as usize);
        let first_start = ends.clone().next().and_then(|_| phases.steps.entries(0)).map(|first| first.start);
        let inner = first_start.into_iter().chain(ends);
        let inner = inner.map(|entry| recording.requests.partition_point(|request| request.entry_index < entry));
        let bounds = std::iter::once(0).chain(inner).chain([recording.requests.len()]);
        Self { ranges: bounds.tuple_windows().map(|(start, end)| start..end).collect() }
    }

    /// The requests of each completed step.
    pub(super) fn completed_ranges(&self) -> &[Range<usize>] {
        self.ranges.get(1..self.ranges.len() - 1).unwrap_or_default() // without steps there is one range
    }

    /// The ranges in which the requests of `step` of the `other` recording may have their pairs, likeliest first.
    fn counterparts(&self, step: usize, other: &Self) -> Vec<Range<usize>> {
        // If only one of the two recordings shows steps, compare them as a whole.
        let [completed, other_completed] = [self, other].map(|steps| steps.completed_ranges().len());
        if (completed == 0) != (other_completed == 0) {
            let whole_recording = 0..self.ranges.last().map_or(0, |last| last.end);
            return vec![whole_recording];
        }
        let after_steps = (step > other_completed).then(|| self.ranges.len() - 1);
        let candidates = after_steps.into_iter().chain([completed.min(step)]);
        candidates.filter_map(|index| self.ranges.get(index).cloned()).collect()
    }
}

/// For each request: whether it has another size in another completed step. The same request of another step is the
/// one with the same occurrence of its stack, if that step has as many of that stack.
pub(super) fn requests_that_vary(recording: &SizedRecording<'_, '_>) -> Vec<bool> {
    let steps = Steps::from_recording(recording);
    // The key is the stack, the number of its requests in the step, and the occurrence, counted from 1.
    let mut first_bytes: FxHashMap<(StackId, u32, u32), (u64, bool)> = FxHashMap::default();
    let mut keys = Vec::new();
    for range in steps.completed_ranges() {
        let requests = &recording.requests[range.clone()];
        let mut count_by_stack: FxHashMap<StackId, u32> = FxHashMap::default();
        let order = requests.iter().map(|request| {
            let count_by_stack = count_by_stack.entry(request.stack).or_default();
            *count_by_stack += 1;
            (request.stack, *count_by_stack)
        });
        let order: Vec<(StackId, u32)> = order.collect();
        for ((stack, occurrence), (index, request)) in order.into_iter().zip(range.clone().zip(requests)) {
            let key = (stack, count_by_stack.get(&stack).copied().unwrap_or(0), occurrence);
            let (first, varies) = first_bytes.entry(key).or_insert((request.bytes, false));
            *varies |= *first != request.bytes;
            keys.push((index, key));
        }
    }
    let mut varies = vec![false; recording.requests.len()];
    for (index, key) in keys {
        varies[index] = first_bytes.get(&key).is_some_and(|(_, varies)| *varies);
    }
    varies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_between_two_pairs_are_pairs() {
        let mut left = [PairedRequest { index: 0, number: 1, bytes: 512 }; 6];
        let (right, sure_pairs) = ([left[0]; 7], vec![(1, 1), (4, 5)]);
        assert_eq!(pair_between(sure_pairs.clone(), &left, &right), [(0, 0), (1, 1), (4, 5), (5, 6)]);
        left[0].number = 2;
        assert_eq!(pair_between(sure_pairs, &left, &right), [(1, 1), (4, 5), (5, 6)]);
    }

    fn aligned(a: &str, b: &str) -> Vec<(usize, usize)> {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        align(a.len(), b.len(), |x, y| a[x] == b[y]).unwrap()
    }

    #[test]
    fn the_textbook_example() {
        assert_eq!(aligned("abcabba", "cbabac").len(), 4);
        assert_eq!(aligned("", ""), []);
        assert_eq!(aligned("abc", ""), []);
        assert_eq!(aligned("abc", "abc"), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(aligned("xabc", "abcy"), [(1, 0), (2, 1), (3, 2)]);
    }

    #[test]
    fn the_search_stops_at_too_many_unpaired() {
        assert_eq!(align(5000, 5000, |_, _| false), None);
    }

    /// A relation that is not transitive.
    fn are_close(a: u8, b: u8) -> bool {
        a.abs_diff(b) <= 1
    }

    fn steps(bounds: &[usize]) -> Steps {
        Steps { ranges: bounds.windows(2).map(|pair| pair[0]..pair[1]).collect() }
    }

    fn counterparts(own: &[usize], step: usize, other: &[usize]) -> Vec<(usize, usize)> {
        let found = steps(own).counterparts(step, &steps(other));
        found.into_iter().map(|range| (range.start, range.end)).collect()
    }

    proptest::proptest! {
        /// As long as dynamic programming finds.
        #[test]
        fn nothing_longer_exists(
            a in proptest::collection::vec(0u8..6, 0..24),
            b in proptest::collection::vec(0u8..6, 0..24),
        ) {
            let pairs = align(a.len(), b.len(), |x, y| are_close(a[x], b[y])).unwrap();
            assert!(pairs.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1));
            assert!(pairs.iter().all(|(x, y)| are_close(a[*x], b[*y])));
            let mut longest = vec![vec![0usize; b.len() + 1]; a.len() + 1];
            for x in 0..a.len() {
                for y in 0..b.len() {
                    let diagonal = if are_close(a[x], b[y]) { longest[x][y] + 1 } else { 0 };
                    longest[x + 1][y + 1] = diagonal.max(longest[x][y + 1]).max(longest[x + 1][y]);
                }
            }
            assert_eq!(pairs.len(), longest[a.len()][b.len()]);
        }
    }

    #[test]
    fn steps_are_compared_with_the_same_step() {
        let (three, two, none) = ([0, 1, 3, 6, 9, 10], [0, 2, 4, 6, 8], [0, 5]);
        for (step, range) in [(0, (0, 1)), (1, (1, 3)), (2, (3, 6))] {
            assert_eq!(counterparts(&three, step, &two), [range]);
        }
        assert_eq!(counterparts(&three, 3, &two), [(9, 10), (6, 9)], "after the last step");
        assert_eq!(counterparts(&two, 3, &three), [(4, 6)]);
        assert_eq!(counterparts(&three, 0, &none), [(0, 10)]);
        assert_eq!(counterparts(&none, 2, &three), [(0, 5)]);
    }
}
