//! The training steps of a recording, and requests that change their size from step to step.

use std::ops::Range;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::input::SizedRecording;
use crate::base::ids::StackId;

/// The requests of a recording, step by step.
pub(super) struct Steps {
    /// The requests before the first step, of each completed step, and after the last completed step.
    pub(super) ranges: Vec<Range<usize>>,
}

impl Steps {
    pub(super) fn from_recording(recording: &SizedRecording<'_, '_>) -> Self {
        let phases = recording.device.phases();
        let request_at = |entry: usize| recording.requests.partition_point(|request| request.entry_index < entry);
        let ends = phases.steps.ends().iter().map(|end| *end as usize);
        let first_start = ends.clone().next().and_then(|_| phases.steps.entries(0)).map(|first| first.start);
        let inner_bounds = first_start.into_iter().chain(ends).map(request_at);
        let bounds = std::iter::once(0).chain(inner_bounds).chain([recording.requests.len()]);
        Self { ranges: bounds.tuple_windows().map(|(start, end)| start..end).collect() }
    }

    /// The requests of each completed step.
    pub(super) fn completed_ranges(&self) -> &[Range<usize>] {
        self.ranges.get(1..self.ranges.len() - 1).unwrap_or_default() // without steps there is one range
    }

    /// The ranges in which the requests of `step` of the `other` recording may have their pairs, likeliest first.
    pub(super) fn counterparts(&self, step: usize, other: &Self) -> Vec<Range<usize>> {
        // If only one of the two recordings shows steps, compare them as a whole.
        let [completed, other_completed] = [self, other].map(|steps| steps.completed_ranges().len());
        if (completed == 0) != (other_completed == 0) {
            let whole_recording = 0..self.ranges.last().map_or(0, |last| last.end);
            return vec![whole_recording];
        }
        let (is_before_steps, is_after_steps) = (step == 0, step > other_completed);
        let last_completed = completed.min(step);
        let candidates = if is_before_steps {
            vec![0]
        } else if is_after_steps {
            vec![self.ranges.len() - 1, last_completed]
        } else {
            vec![last_completed]
        };
        candidates.into_iter().filter_map(|index| self.ranges.get(index).cloned()).collect()
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
    fn steps_are_compared_with_the_same_step() {
        let steps = |bounds: &[usize]| Steps { ranges: bounds.windows(2).map(|pair| pair[0]..pair[1]).collect() };
        let counterparts = |own: &[usize], step, other: &[usize]| {
            let found = steps(own).counterparts(step, &steps(other));
            found.into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
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
