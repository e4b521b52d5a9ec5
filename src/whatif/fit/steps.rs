//! The training steps of a recording, and what its requests are at most at the same place of any step.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::recording::Recording;
use crate::base::ids::StackId;

/// The requests of a recording, step by step.
pub(super) struct Steps {
    /// Those before the first step, those of each whole step, and those after the last.
    pub(super) ranges: Vec<Range<usize>>,
    whole: usize,
}

impl Steps {
    pub(super) fn of(recording: &Recording<'_, '_>) -> Self {
        let phases = recording.device.phases();
        let at = |entry: usize| recording.requests.partition_point(|request| request.at < entry);
        let mut ranges = Vec::new();
        let mut start = 0;
        let whole = phases.completed_steps();
        let firsts = (whole > 0).then(|| phases.step_entries(0).map_or(0, |first| first.start));
        let ends = phases.step_ends().iter().map(|end| *end as usize);
        for end in firsts.into_iter().chain(ends) {
            let end = at(end);
            ranges.push(start..end);
            start = end;
        }
        ranges.push(start..recording.requests.len());
        Self { ranges, whole }
    }

    /// Where the partners of `step` of the `other` recording may be, the likeliest first.
    pub(super) fn like(&self, step: usize, other: &Self) -> Vec<Range<usize>> {
        // One of the two was not told apart: all of it is held against all.
        if (self.whole == 0) != (other.whole == 0) {
            let all = 0..self.ranges.last().map_or(0, |last| last.end);
            return vec![all];
        }
        let (is_before, is_after) = (step == 0, step > other.whole);
        let last_whole = self.whole.min(step);
        let rows = if is_before {
            vec![0]
        } else if is_after {
            vec![self.ranges.len() - 1, last_whole]
        } else {
            vec![last_whole]
        };
        rows.into_iter().filter_map(|row| self.ranges.get(row).cloned()).collect()
    }
}

/// Of each request of `recording` the most bytes that it asks for at that place of any whole step: the same request of
/// the same stack, where as many of that stack are made. `None` where it is the same in all of them.
pub(super) fn most_of_any_step(recording: &Recording<'_, '_>) -> Vec<Option<u64>> {
    let steps = Steps::of(recording);
    let whole = steps.ranges.get(1..=steps.whole).unwrap_or_default();
    // Requests of a stack in a step, and which of them it is.
    let mut places: FxHashMap<(StackId, u32, u32), [u64; 2]> = FxHashMap::default();
    let mut keys = Vec::new();
    for range in whole {
        let asked = &recording.requests[range.clone()];
        let mut made: FxHashMap<StackId, u32> = FxHashMap::default();
        let order = asked.iter().map(|request| {
            let made = made.entry(request.stack).or_default();
            *made += 1;
            (request.stack, *made)
        });
        let order: Vec<(StackId, u32)> = order.collect();
        for ((stack, which), (row, request)) in order.into_iter().zip(range.clone().zip(asked)) {
            let key = (stack, made.get(&stack).copied().unwrap_or(0), which);
            let [least, most] = places.entry(key).or_insert([request.bytes; 2]);
            (*least, *most) = ((*least).min(request.bytes), (*most).max(request.bytes));
            keys.push((row, key));
        }
    }
    let mut most = vec![None; recording.requests.len()];
    for (row, key) in keys {
        most[row] = places.get(&key).filter(|[least, most]| least < most).map(|[_, most]| *most);
    }
    most
}
