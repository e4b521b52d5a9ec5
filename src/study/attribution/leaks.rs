//! Finds source lines whose live memory grows with every training step, or every nth step.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededSet;
use crate::stacks::frames::{CodeLocation, LineId, StackReader};

/// Minimum number of consecutive steps that each end with more blocks than the previous suspect.
const MIN_STEPS_OF_BLOCKS: u32 = 3;
/// Minimum number of growing steps if only every nth step adds blocks: three equal intervals.
const MIN_SPARSE_STEPS_OF_BLOCKS: u32 = 4;
/// Minimum number of growing steps for a line whose number of blocks stays the same. Four random sizes are in ascending
/// order once in 24 cases, seven once in 5040.
const MIN_STEPS_OF_BYTES: u32 = 6;

/// A source line whose live memory grew with each of the last steps, or with every nth step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakSuspect {
    /// The line; one suspect gathers all stacks without a line.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operation of one of its stacks; null if the stack shows none.
    pub operation: Option<String>,
    /// The first step of the growth, counted from 0.
    pub since_step: u32,
    /// Number of steps that ended with more memory than the previous suspect.
    pub steps: u32,
    /// Distance between growing steps; 1 if every step grew.
    pub every_steps: u32,
    /// Average growth per step in bytes.
    pub bytes_per_step: u64,
    /// Average growth per step in blocks; 0 if the number of blocks does not grow with the bytes.
    pub blocks_per_step: f64,
    /// Live bytes of the line after the last step.
    pub bytes: u64,
    /// Live blocks of the line after the last step.
    pub blocks: u64,
}

/// Growth from step to step that lasted until the last recorded step.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Leaks {
    /// Average growth of all suspects together per step in bytes, including those not listed.
    pub bytes_per_step: u64,
    /// Device memory that was not allocated after the last step in bytes; absent if nothing grows or the
    /// device's capacity is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_bytes: Option<u64>,
    /// Number of steps until `remaining_bytes` is used up at this rate; absent without `remaining_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_left: Option<u64>,
    /// The lines, by growth per step, descending, `--top` of them.
    pub suspects: Vec<LeakSuspect>,
    /// Number of suspects that are not listed.
    pub other_suspects: u64,
}

impl Leaks {
    /// Whether the growth covers the `missing` bytes, and the remaining memory lasts for fewer steps than it has grown.
    pub(crate) fn explain_shortfall(&self, missing: u64) -> bool {
        let steps = |suspect: &LeakSuspect| u64::from(suspect.steps).saturating_mul(suspect.every_steps.into());
        let grown = self.suspects.iter().map(|suspect| suspect.bytes_per_step.saturating_mul(steps(suspect)));
        let longest = self.suspects.iter().map(steps).max().unwrap_or(0);
        missing > 0
            && grown.fold(0, u64::saturating_add) >= missing
            && self.steps_left.is_none_or(|left| left < longest)
    }
}

/// Growth at even intervals: steps that each ended with a higher value, and none with a lower suspect.
#[derive(Debug, Clone, Copy, Default)]
struct GrowthStreak {
    /// Number of growing steps.
    steps: u32,
    /// Distance between the last two growing steps.
    every: u32,
    /// Value before the first growing step.
    start_value: u64,
    /// Value before the last growing step.
    previous: u64,
    /// Value after the last step.
    last: u64,
    /// Number (from 1) of the last growing step.
    last_step: u32,
}

impl GrowthStreak {
    /// Step number `ended` (from 1) ended with `value`.
    fn end_step(&mut self, ended: u32, value: u64) {
        if value < self.last {
            self.steps = 0;
        } else if value > self.last && ended > 1 {
            let every = ended.saturating_sub(self.last_step);
            match self.steps {
                0 => (self.steps, self.start_value) = (1, self.last),
                steps if steps == 1 || every == self.every => self.steps += 1,
                _ => (self.steps, self.start_value) = (2, self.previous),
            }
            (self.every, self.previous, self.last_step) = (every, self.last, ended);
        }
        self.last = value;
    }

    /// Whether the growth was due to continue, after `ended` steps.
    fn is_ongoing(&self, ended: u32) -> bool {
        self.steps > 1 && ended.saturating_sub(self.last_step) < self.every
    }

    /// Number of steps from the first to the last growing suspect.
    fn length(&self) -> u32 {
        self.steps.saturating_mul(self.every)
    }

    fn per_step(&self) -> u64 {
        (self.last - self.start_value).checked_div(u64::from(self.length())).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
struct LineGrowth {
    bytes: u64,
    blocks: u64,
    by_bytes: GrowthStreak,
    by_blocks: GrowthStreak,
    /// Whether a block was allocated or freed in the current step.
    is_touched: bool,
    /// Sizes of its blocks; only collected if some blocks are older than the recording.
    sizes: SeededSet<u64>,
    /// One of its stacks.
    stack: StackId,
}

impl LineGrowth {
    /// Whether blocks accumulate up to the last of `ended` steps. Bytes alone do not show that: a block may be replaced
    /// by a larger one whose size depends on the batch.
    fn grows_in_blocks(&self, ended: u32) -> bool {
        let (bytes, blocks) = (&self.by_bytes, &self.by_blocks);
        let minimum = if bytes.every == 1 { MIN_STEPS_OF_BLOCKS } else { MIN_SPARSE_STEPS_OF_BLOCKS };
        let grew = |streak: &GrowthStreak| streak.is_ongoing(ended) && streak.steps >= minimum;
        grew(bytes) && grew(blocks) && bytes.every == blocks.every
    }

    /// Whether the bytes grew for so long, up to the last of `ended` steps, that chance is unlikely.
    fn grows_in_bytes(&self, ended: u32) -> bool {
        self.by_bytes.is_ongoing(ended) && self.by_bytes.steps >= MIN_STEPS_OF_BYTES
    }
}

/// Compares the live memory of each line at the end of each step.
#[derive(Debug, Default)]
pub(super) struct LeakTracker {
    lines: Vec<LineGrowth>,
    by_line: FxHashMap<LineId, u32>,
    /// Index into `lines` by stack, filled on first use.
    by_stack: Vec<Option<u32>>,
    touched: Vec<u32>,
    /// Some blocks are older than the recording.
    has_older_blocks: bool,
    /// Sizes of the older blocks freed in the current step.
    freed_older_sizes: SeededSet<u64>,
    steps_ended: u32,
    /// Bytes allocated after the last step.
    allocated: u64,
}

impl LeakTracker {
    pub(super) fn new(stacks: usize) -> Self {
        Self { by_stack: vec![None; stacks], ..Self::default() }
    }

    fn line(&mut self, stacks: &StackReader<'_>, stack: StackId) -> &mut LineGrowth {
        let (lines, by_line) = (&mut self.lines, &mut self.by_line);
        let at = *self.by_stack[stack.index()].get_or_insert_with(|| {
            *by_line.entry(stacks.line_id(stack)).or_insert_with(|| {
                lines.push(LineGrowth { stack, ..LineGrowth::default() });
                to_u32(lines.len() - 1)
            })
        });
        let line = &mut self.lines[at as usize];
        if !line.is_touched {
            line.is_touched = true;
            self.touched.push(at);
        }
        line
    }

    pub(super) fn add(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        let is_late = self.has_older_blocks;
        let line = self.line(stacks, stack);
        line.bytes = line.bytes.saturating_add(bytes);
        line.blocks += 1;
        if is_late {
            line.sizes.insert(bytes);
        }
    }

    /// Adds a block that is older than the recording.
    pub(super) fn add_older(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        self.add(stacks, stack, bytes);
        self.has_older_blocks = true;
    }

    /// Removes a block that is older than the recording. Its line may be unknown, so a queue that replaces older blocks
    /// seems to grow; lines with blocks of the same size start over.
    pub(super) fn remove_older(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        self.remove(stacks, stack, bytes);
        self.freed_older_sizes.insert(bytes);
    }

    pub(super) fn remove(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        let line = self.line(stacks, stack);
        line.bytes = line.bytes.saturating_sub(bytes);
        line.blocks = line.blocks.saturating_sub(1);
    }

    pub(super) fn end_step(&mut self, allocated: u64) {
        self.steps_ended += 1;
        self.allocated = allocated;
        for at in self.touched.drain(..) {
            let line = &mut self.lines[at as usize];
            line.is_touched = false;
            if !self.freed_older_sizes.is_disjoint(&line.sizes) {
                (line.by_bytes.steps, line.by_blocks.steps) = (0, 0);
                (line.by_bytes.last, line.by_blocks.last) = (line.bytes, line.blocks);
            }
            line.by_bytes.end_step(self.steps_ended, line.bytes);
            line.by_blocks.end_step(self.steps_ended, line.blocks);
        }
        self.freed_older_sizes.clear();
    }

    /// Whether the line of `stack` grew up to the end of the last step.
    pub(super) fn grows(&self, stack: StackId) -> bool {
        self.by_stack[stack.index()].is_some_and(|at| {
            let line = &self.lines[at as usize];
            line.grows_in_blocks(self.steps_ended) || line.grows_in_bytes(self.steps_ended)
        })
    }

    /// The `top` lines that grew up to the end of the last step, on a device of `capacity` bytes.
    pub(super) fn report(&self, stacks: &StackReader<'_>, top: usize, capacity: Option<u64>) -> Leaks {
        let growing = self.lines.iter().filter(|line| line.grows_in_blocks(self.steps_ended));
        let mut suspects: Vec<LeakSuspect> = growing.map(|line| leak_suspect(line, stacks)).collect();
        suspects.sort_by_key(|suspect| Reverse(suspect.bytes_per_step)); // stable: ties as they first appeared
        let bytes_per_step = suspects.iter().map(|suspect| suspect.bytes_per_step).fold(0, u64::saturating_add);
        let other_suspects = suspects.len().saturating_sub(top) as u64;
        suspects.truncate(top);
        let remaining_bytes =
            capacity.filter(|_| bytes_per_step > 0).map(|capacity| capacity.saturating_sub(self.allocated));
        let steps_left = remaining_bytes.and_then(|left| left.checked_div(bytes_per_step));
        Leaks { bytes_per_step, remaining_bytes, steps_left, suspects, other_suspects }
    }
}

fn leak_suspect(line: &LineGrowth, stacks: &StackReader<'_>) -> LeakSuspect {
    let (bytes, blocks) = (&line.by_bytes, &line.by_blocks);
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let blocks_per_step = match blocks.length() {
        1.. if (blocks.last_step, blocks.every) == (bytes.last_step, bytes.every) => {
            (blocks.last - blocks.start_value) as f64 / f64::from(blocks.length())
        }
        _ => 0.0,
    };
    LeakSuspect {
        location: stacks.code_location(stacks.line_id(line.stack)),
        operation: stacks.operation(line.stack),
        // `last_step` counts from 1, `since_step` from 0.
        since_step: (bytes.last_step + bytes.every).saturating_sub(bytes.length() + 1),
        steps: bytes.steps,
        every_steps: bytes.every,
        bytes_per_step: bytes.per_step(),
        blocks_per_step,
        bytes: bytes.last,
        blocks: blocks.last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streak(ends: &[(u32, u64)]) -> GrowthStreak {
        let mut streak = GrowthStreak::default();
        for (ended, now) in ends {
            streak.end_step(*ended, *now);
        }
        streak
    }

    #[test]
    fn a_streak_consists_of_consecutive_steps() {
        let grown = streak(&[(1, 10), (2, 20), (3, 30), (4, 50)]);
        assert_eq!((grown.steps, grown.every, grown.per_step()), (3, 1, 13));
        assert!(grown.is_ongoing(4) && !grown.is_ongoing(5), "step 5 added nothing");
        assert!(!streak(&[(1, 10), (2, 20), (3, 20)]).is_ongoing(3), "it stayed");
        assert!(!streak(&[(1, 10), (2, 20), (3, 15)]).is_ongoing(3), "it shrank");
        assert_eq!(streak(&[(1, 10)]).steps, 0, "no previous step to compare with");
        assert_eq!(streak(&[(3, 10), (4, 20), (5, 30)]).steps, 3, "from nothing at step 2");
        let later = streak(&[(2, 10), (5, 20), (6, 30), (7, 40)]);
        assert_eq!((later.steps, later.every, later.per_step()), (3, 1, 10), "not since step 2");
    }

    #[test]
    fn a_streak_may_skip_steps() {
        let ends = [(1, 5), (3, 10), (4, 10), (6, 20), (9, 30), (12, 40)];
        let grown = streak(&ends);
        assert_eq!((grown.steps, grown.every, grown.length(), grown.per_step()), (4, 3, 12, 2));
        assert!(grown.is_ongoing(14) && !grown.is_ongoing(15));
        assert!(!streak(&[(2, 10), (4, 20), (6, 30), (7, 5), (8, 40)]).is_ongoing(8), "it shrank");
    }
}
