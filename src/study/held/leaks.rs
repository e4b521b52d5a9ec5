//! Memory that grows with every training step, or with every so many, by line of code.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededSet;
use crate::stacks::frames::{CodeLocation, LineId, StackReader};

/// Steps in a row that must each end with more blocks than the one before.
const STEPS_OF_BLOCKS: u32 = 3;
/// Times that blocks must have become more where not every step adds some: three equal intervals.
const TIMES_OF_BLOCKS: u32 = 4;
/// Steps in a row that must each end with more bytes for a line to grow whose blocks do not become more: four
/// random sizes are in rising order once in 24 times, seven once in 5040.
const STEPS_OF_BYTES: u32 = 6;

/// A line of the user's code whose live memory grew in each of the last steps, or in each second, third,
/// ... of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeakSuspect {
    /// The line; `None` gathers stacks without one.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// What one of its stacks was doing, as far as the stack tells.
    pub operation: Option<String>,
    /// The first step that ended with more than the one before.
    pub since_step: u32,
    /// How many steps did.
    pub steps: u32,
    /// From one of them to the next; 1 where each step did.
    pub every_steps: u32,
    /// Bytes by which a step ended with more than the one before, on average.
    pub bytes_per_step: u64,
    /// Blocks, likewise.
    pub blocks_per_step: f64,
    /// Bytes it held at the end of the last step.
    pub bytes: u64,
    /// Blocks, likewise.
    pub blocks: u64,
}

/// What grew with every step up to the last that was recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Leaks {
    /// By how much all suspects together grow.
    pub bytes_per_step: u64,
    /// Device memory that the program did not hold after the last step, where the device's size is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_bytes: Option<u64>,
    /// How many more steps fit in it at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_left: Option<u64>,
    /// The lines, those that grow most first.
    pub suspects: Vec<LeakSuspect>,
    /// How many more there are.
    pub other_suspects: u64,
}

impl Leaks {
    /// Whether the lines hold more by now than was `missing`, and would not have had room for as many steps again.
    pub(crate) fn explain(&self, missing: u64) -> bool {
        let steps = |one: &LeakSuspect| u64::from(one.steps).saturating_mul(one.every_steps.into());
        let grown = self.suspects.iter().map(|one| one.bytes_per_step.saturating_mul(steps(one)));
        let longest = self.suspects.iter().map(steps).max().unwrap_or(0);
        missing > 0
            && grown.fold(0, u64::saturating_add) >= missing
            && self.steps_left.is_none_or(|left| left < longest)
    }
}

/// Steps at even intervals that each ended with more than there was before, with none that ended with less.
#[derive(Debug, Clone, Copy, Default)]
struct Streak {
    /// How many.
    steps: u32,
    /// From one to the next, where there are two.
    every: u32,
    /// What there was before the first of them, and before the last.
    from: u64,
    before: u64,
    /// What there was after the last.
    last: u64,
    /// How many steps had ended then.
    until: u32,
}

impl Streak {
    /// The step of number `ended` (from 1) ended with `now`.
    fn end_step(&mut self, ended: u32, now: u64) {
        if now < self.last {
            self.steps = 0;
        } else if now > self.last && ended > 1 {
            let every = ended.saturating_sub(self.until);
            match self.steps {
                0 => (self.steps, self.from) = (1, self.last),
                steps if steps == 1 || every == self.every => self.steps += 1,
                _ => (self.steps, self.from) = (2, self.before),
            }
            (self.every, self.before, self.until) = (every, self.last, ended);
        }
        self.last = now;
    }

    /// Whether it lasts, after `ended` steps: none that should have ended with more did not.
    fn lasts(&self, ended: u32) -> bool {
        self.steps > 1 && ended.saturating_sub(self.until) < self.every
    }

    /// How many steps it took.
    fn length(&self) -> u32 {
        self.steps.saturating_mul(self.every)
    }

    fn per_step(&self) -> u64 {
        (self.last - self.from).checked_div(u64::from(self.length())).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
struct LineGrowth {
    bytes: u64,
    blocks: u64,
    by_bytes: Streak,
    by_blocks: Streak,
    is_touched: bool,
    /// Sizes of its blocks, where some blocks are older than the recording.
    sizes: SeededSet<u64>,
    /// One of its stacks.
    stack: StackId,
}

impl LineGrowth {
    /// Whether it grew up to the last step, of which `ended` have ended, because blocks accumulate: one
    /// that a larger one replaces takes its size from the batch, and no step keeps what another made.
    fn grows(&self, ended: u32) -> bool {
        let (bytes, blocks) = (&self.by_bytes, &self.by_blocks);
        let least = if bytes.every == 1 { STEPS_OF_BLOCKS } else { TIMES_OF_BLOCKS };
        let grew = |streak: &Streak, least| streak.lasts(ended) && streak.steps >= least;
        grew(bytes, least) && grew(blocks, least) && bytes.every == blocks.every
    }

    /// Whether it held more at the end of each of the last steps, of which `ended` have ended, be it in one
    /// block.
    fn grows_in_bytes(&self, ended: u32) -> bool {
        self.by_bytes.lasts(ended) && self.by_bytes.steps >= STEPS_OF_BYTES
    }
}

/// What each line holds, compared at the end of each step.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    lines: Vec<LineGrowth>,
    by_line: FxHashMap<LineId, u32>,
    /// The line of each stack, once it is known.
    by_stack: Vec<Option<u32>>,
    touched: Vec<u32>,
    /// Whether some blocks are older than the recording.
    is_late: bool,
    /// Sizes of those that were freed in this step.
    older_gone: SeededSet<u64>,
    ended: u32,
    /// Bytes that the program held after the last step.
    allocated: u64,
}

impl Tracker {
    /// Of a snapshot with so many `stacks`.
    pub(super) fn of(stacks: usize) -> Self {
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
        let is_late = self.is_late;
        let line = self.line(stacks, stack);
        line.bytes = line.bytes.saturating_add(bytes);
        line.blocks += 1;
        if is_late {
            line.sizes.insert(bytes);
        }
    }

    /// A block was there when the recording began.
    pub(super) fn add_older(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        self.add(stacks, stack, bytes);
        self.is_late = true;
    }

    /// One of these is freed. What line it is from is not known: a queue that takes one in and lets an
    /// older one go only seems to grow.
    pub(super) fn take_older(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        self.take(stacks, stack, bytes);
        self.older_gone.insert(bytes);
    }

    pub(super) fn take(&mut self, stacks: &StackReader<'_>, stack: StackId, bytes: u64) {
        let line = self.line(stacks, stack);
        line.bytes = line.bytes.saturating_sub(bytes);
        line.blocks = line.blocks.saturating_sub(1);
    }

    /// A step has ended with so much allocated.
    pub(super) fn end_step(&mut self, allocated: u64) {
        self.ended += 1;
        self.allocated = allocated;
        for at in self.touched.drain(..) {
            let line = &mut self.lines[at as usize];
            line.is_touched = false;
            if !self.older_gone.is_disjoint(&line.sizes) {
                (line.by_bytes.steps, line.by_blocks.steps) = (0, 0);
                (line.by_bytes.last, line.by_blocks.last) = (line.bytes, line.blocks);
            }
            line.by_bytes.end_step(self.ended, line.bytes);
            line.by_blocks.end_step(self.ended, line.blocks);
        }
        self.older_gone.clear();
    }

    /// Whether the line of `stack` held more and more up to the end of the last step.
    pub(super) fn grows(&self, stack: StackId) -> bool {
        self.by_stack[stack.index()].is_some_and(|at| {
            let line = &self.lines[at as usize];
            line.grows(self.ended) || line.grows_in_bytes(self.ended)
        })
    }

    /// The lines that grew up to the end of the last step, `top` of them, on a device of `capacity` bytes.
    pub(super) fn report(
        &self,
        stacks: &StackReader<'_>,
        top: usize,
        capacity: Option<u64>,
    ) -> Leaks {
        let growing = self.lines.iter().filter(|line| line.grows(self.ended));
        let mut suspects: Vec<LeakSuspect> = growing.map(|line| suspect(line, stacks)).collect();
        suspects.sort_by_key(|one| Reverse(one.bytes_per_step)); // stable: ties as they first appeared
        let bytes_per_step =
            suspects.iter().map(|one| one.bytes_per_step).fold(0, u64::saturating_add);
        let other_suspects = suspects.len().saturating_sub(top) as u64;
        suspects.truncate(top);
        let remaining_bytes = capacity
            .filter(|_| bytes_per_step > 0)
            .map(|capacity| capacity.saturating_sub(self.allocated));
        let steps_left = remaining_bytes.and_then(|left| left.checked_div(bytes_per_step));
        Leaks { bytes_per_step, remaining_bytes, steps_left, suspects, other_suspects }
    }
}

fn suspect(line: &LineGrowth, stacks: &StackReader<'_>) -> LeakSuspect {
    let (bytes, blocks) = (&line.by_bytes, &line.by_blocks);
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let blocks_per_step = match blocks.length() {
        1.. if (blocks.until, blocks.every) == (bytes.until, bytes.every) => {
            (blocks.last - blocks.from) as f64 / f64::from(blocks.length())
        }
        _ => 0.0,
    };
    LeakSuspect {
        location: stacks.code_location(stacks.line_id(line.stack)),
        operation: stacks.operation(line.stack),
        // Steps count from 0.
        since_step: (bytes.until + bytes.every).saturating_sub(bytes.length() + 1),
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

    fn streak(ends: &[(u32, u64)]) -> Streak {
        let mut streak = Streak::default();
        for (ended, now) in ends {
            streak.end_step(*ended, *now);
        }
        streak
    }

    #[test]
    fn a_streak_is_of_steps_in_a_row() {
        let grown = streak(&[(1, 10), (2, 20), (3, 30), (4, 50)]);
        assert_eq!((grown.steps, grown.every, grown.per_step()), (3, 1, 13));
        assert!(grown.lasts(4) && !grown.lasts(5), "step 5 added nothing");
        assert!(!streak(&[(1, 10), (2, 20), (3, 20)]).lasts(3), "it stayed");
        assert!(!streak(&[(1, 10), (2, 20), (3, 15)]).lasts(3), "it shrank");
        assert_eq!(streak(&[(1, 10)]).steps, 0, "there is nothing to compare with");
        assert_eq!(streak(&[(3, 10), (4, 20), (5, 30)]).steps, 3, "from nothing at step 2");
        let later = streak(&[(2, 10), (5, 20), (6, 30), (7, 40)]);
        assert_eq!((later.steps, later.every, later.per_step()), (3, 1, 10), "not since step 2");
    }

    #[test]
    fn a_streak_may_be_of_each_third_step() {
        let ends = [(1, 5), (3, 10), (4, 10), (6, 20), (9, 30), (12, 40)];
        let grown = streak(&ends);
        assert_eq!((grown.steps, grown.every, grown.length(), grown.per_step()), (4, 3, 12, 2));
        assert!(grown.lasts(14) && !grown.lasts(15));
        assert!(!streak(&[(2, 10), (4, 20), (6, 30), (7, 5), (8, 40)]).lasts(8), "it shrank");
    }
}
