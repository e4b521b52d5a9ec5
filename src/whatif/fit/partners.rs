//! Which request of one recording is which of another.
//!
//! Requests of the same stack, in order, by their bytes where sizes tell, step by step where training steps are known: one recording may have more of
//! them, and what is left of the longer one is held against the last whole step of the other. Stacks are the same as
//! in [`crate::stacks::matching`], so that an edited line or a moved file does not part them.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::align::aligned;
use super::law::grows_by_powers;
use super::recording::{Recording, Request};
use super::size::Numbers;
use super::steps::Steps;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::stacks::matching::{Candidate, FrameKey, FrameTable, pair_stacks};

/// Rows of the other recording, for each of one.
#[derive(Debug, Default)]
pub(super) struct Partners {
    /// Of each request.
    pub(super) requests: Vec<Option<u32>>,
    /// Of each block from before the recording.
    pub(super) held: Vec<Option<u32>>,
}

impl Partners {
    /// The partners of these in a third recording, those of which in it are `next`.
    fn then(&self, next: &Self) -> Self {
        let through = |own: &[Option<u32>], next: &[Option<u32>]| {
            own.iter().map(|row| *next.get((*row)? as usize)?).collect()
        };
        Self {
            requests: through(&self.requests, &next.requests),
            held: through(&self.held, &next.held),
        }
    }
}

/// The partners of `base` in each of `others`. One that differs in both numbers of its size is held against one that
/// shares a number with each: where both change, twice, four and eight times as large are hardly told apart.
pub(super) fn all_partners<'s, 'a>(
    base: &Recording<'s, 'a>,
    others: &[&Recording<'s, 'a>],
) -> Vec<Partners> {
    let differs = |other: &Recording<'_, '_>| {
        let [own, others] = [base.size.numbers(), other.size.numbers()];
        own[0] != others[0] && own[1] != others[1]
    };
    let between = |other: &Recording<'_, '_>| {
        let [own, wanted] = [base.size.numbers(), other.size.numbers()];
        let is_between = |size: Numbers| size == [own[0], wanted[1]] || size == [wanted[0], own[1]];
        others.iter().position(|one| is_between(one.size.numbers()))
    };
    let near = others.iter().map(|other| (!differs(other)).then(|| partners(base, other)));
    let near: Vec<Option<Partners>> = near.collect();
    let far = others.iter().zip(&near).map(|(other, known)| {
        known.is_none().then(|| {
            match between(other).and_then(|at| Some((others[at], near[at].as_ref()?))) {
                Some((one, known)) => known.then(&partners(one, other)),
                None => partners(base, other),
            }
        })
    });
    let far: Vec<Option<Partners>> = far.collect();
    near.into_iter().zip(far).filter_map(|(near, far)| near.or(far)).collect()
}

/// The partners of what `one` asked for, and held, in `other`.
fn partners<'s, 'a>(one: &Recording<'s, 'a>, other: &Recording<'s, 'a>) -> Partners {
    let tokens = tokens([one, other]);
    let [own, others] = &tokens;
    let read = |recording: &Recording<'_, '_>, tokens: &FxHashMap<StackId, StackNumber>| {
        let number = |stack: StackId| tokens.get(&stack).copied().unwrap_or(0);
        let asked =
            |request: &Request| Asked { number: number(request.stack), bytes: request.bytes };
        let asked = recording.requests.iter().map(asked).collect();
        Side { size: recording.size.numbers(), asked }
    };
    let sides = [read(one, own), read(other, others)];
    let steps = [Steps::of(one), Steps::of(other)];
    let mut requests = vec![None; one.requests.len()];
    for (step, range) in steps[0].ranges.iter().enumerate() {
        let mut best: Vec<(usize, usize)> = Vec::new();
        for elsewhere in steps[1].like(step, &steps[0]) {
            let pairs = in_order(&sides[0], range.clone(), &sides[1], elsewhere);
            if pairs.len() > best.len() {
                best = pairs;
            }
            if best.len() == range.len() {
                break;
            }
        }
        for (own, partner) in best {
            requests[own] = Some(to_u32(partner));
        }
    }
    Partners { requests, held: held_before([one, other], &tokens) }
}

/// The same number for the same stack on both sides.
fn tokens(sides: [&Recording<'_, '_>; 2]) -> [FxHashMap<StackId, StackNumber>; 2] {
    let words = FrameTable::new(sides.map(|side| side.device.snapshot()));
    // Different stacks of one recording may have the same frames.
    let mut ids = [0, 1].map(|_| FxHashMap::<StackId, usize>::default());
    let mut lists: [Vec<(Vec<FrameKey>, u64)>; 2] = Default::default();
    for (side, recording) in sides.into_iter().enumerate() {
        let mut by_places: SeededMap<Vec<FrameKey>, usize> = SeededMap::default();
        let residents = recording.program().initial_blocks.iter().map(|resident| resident.context);
        let stacks = recording.requests.iter().map(|request| request.stack).chain(residents);
        for stack in stacks {
            let (ids, list) = (&mut ids[side], &mut lists[side]);
            let at = *ids.entry(stack).or_insert_with(|| {
                let places = words.stack_keys(side, recording.device.snapshot(), stack);
                *by_places.entry(places.clone()).or_insert_with(|| {
                    list.push((places, 0));
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
    for (number, pair) in pair_stacks(&candidates[0], &candidates[1], &words).iter().enumerate() {
        for (numbers, at) in numbers.iter_mut().zip(pair.rows) {
            if let Some(number_of) = at.and_then(|at| numbers.get_mut(at)) {
                *number_of = to_u32(number);
            }
        }
    }
    [0, 1].map(|side| ids[side].iter().map(|(stack, row)| (*stack, numbers[side][*row])).collect())
}

/// The same stack has the same number on both sides.
type StackNumber = u32;

/// A request, as far as it matters here.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: StackNumber,
    bytes: u64,
}

/// All of one recording.
struct Side {
    size: Numbers,
    asked: Vec<Asked>,
}

/// Pairs of rows, in order: requests of one stack whose bytes are the same, or grow with a power of the size; of what
/// is left between two such pairs, requests of a stack that has as many on both sides. Threads of a backward pass
/// have no stack, and there only the bytes tell one request from another.
fn in_order(
    one: &Side,
    range: Range<usize>,
    other: &Side,
    elsewhere: Range<usize>,
) -> Vec<(usize, usize)> {
    let (own, others) = (&one.asked[range.clone()], &other.asked[elsewhere.clone()]);
    let is_same = |a: usize, b: usize| own[a].number == others[b].number;
    let shift = |(a, b): (usize, usize)| (a + range.start, b + elsewhere.start);
    if own.len() == others.len() && (0..own.len()).all(|at| is_same(at, at)) {
        return (0..own.len()).map(|at| shift((at, at))).collect();
    }
    let grows = |most: u32, a: usize, b: usize| {
        let points = [(one.size, own[a].bytes), (other.size, others[b].bytes)];
        is_same(a, b) && grows_by_powers(most, points[0], points[1])
    };
    let least = aligned(own.len(), others.len(), |a, b| grows(1, a, b));
    let all = aligned(own.len(), others.len(), |a, b| grows(2, a, b));
    // Sizes are often powers of two: what is four times as large at twice the size need not be the same request.
    let sure =
        least.filter(|least| all.as_ref().is_none_or(|all| least.len() >= all.len())).or(all);
    let Some(sure) = sure.or_else(|| aligned(own.len(), others.len(), is_same)) else {
        return Vec::new();
    };
    let mut pairs = Vec::with_capacity(own.len());
    let mut from = (0, 0);
    for pair in sure.into_iter().chain([(own.len(), others.len())]) {
        between(own, from.0..pair.0, others, from.1..pair.1, &mut pairs);
        if pair.0 < own.len() {
            pairs.push(pair);
        }
        from = (pair.0 + 1, pair.1 + 1);
    }
    pairs.into_iter().map(shift).collect()
}

/// Pairs requests between two pairs, of each stack that has as many on both sides, in order.
fn between(
    own: &[Asked],
    range: Range<usize>,
    others: &[Asked],
    elsewhere: Range<usize>,
    pairs: &mut Vec<(usize, usize)>,
) {
    if range.is_empty() || elsewhere.is_empty() {
        return;
    }
    let mut groups: BTreeMap<StackNumber, [Vec<usize>; 2]> = BTreeMap::new();
    for (side, (asked, rows)) in [(own, range), (others, elsewhere)].into_iter().enumerate() {
        for row in rows {
            groups.entry(asked[row].number).or_default()[side].push(row);
        }
    }
    for [left, right] in groups.into_values().filter(|[left, right]| left.len() == right.len()) {
        pairs.extend(left.into_iter().zip(right));
    }
}

/// Of each block that the first of `sides` held before its recording, the partner in the other: one of the same stack
/// and as many bytes, or in proportion to a number of the size or to both; then, where as many are left of a stack, the next by bytes.
fn held_before(
    sides: [&Recording<'_, '_>; 2],
    tokens: &[FxHashMap<StackId, StackNumber>; 2],
) -> Vec<Option<u32>> {
    let mut groups: FxHashMap<StackNumber, [Vec<(u64, u32)>; 2]> = FxHashMap::default();
    for (side, recording) in sides.into_iter().enumerate() {
        for (index, resident) in recording.program().initial_blocks.iter().enumerate() {
            let token = tokens[side].get(&resident.context).copied().unwrap_or(0);
            groups.entry(token).or_default()[side].push((resident.requested, to_u32(index)));
        }
    }
    let mut partners = vec![None; sides[0].program().initial_blocks.len()];
    for mut left in groups.into_values() {
        for side in &mut left {
            side.sort_unstable();
        }
        let of = |at: usize| sides.map(|side| u128::from(side.size.numbers()[at]));
        for scale in [[1, 1], of(0), of(1), sides.map(|side| side.size.extent())] {
            take(&mut left, scale, &mut partners);
        }
        if left[0].len() == left[1].len() {
            for ((_, own), (_, partner)) in left[0].iter().zip(&left[1]) {
                partners[*own as usize] = Some(*partner);
            }
        }
    }
    partners
}

/// Takes those out of both sorted lists whose bytes are as `scale` says.
fn take(left: &mut [Vec<(u64, u32)>; 2], scale: [u128; 2], partners: &mut [Option<u32>]) {
    let [own, others] = left;
    let (mut kept, mut kept_others) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (own.iter().peekable(), others.iter().peekable());
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let scaled = [u128::from(x.0) * scale[1], u128::from(y.0) * scale[0]];
        match scaled[0].cmp(&scaled[1]) {
            std::cmp::Ordering::Less => kept.extend(a.next().copied()),
            std::cmp::Ordering::Greater => kept_others.extend(b.next().copied()),
            std::cmp::Ordering::Equal => {
                partners[x.1 as usize] = Some(y.1);
                a.next();
                b.next();
            }
        }
    }
    kept.extend(a);
    kept_others.extend(b);
    (*own, *others) = (kept, kept_others);
}
