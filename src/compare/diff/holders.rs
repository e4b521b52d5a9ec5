//! Who holds more or less than before, by stack.

use std::cmp::Reverse;

use serde::Serialize;

use super::moment::{ComparedMemory, HeldStack};
use crate::base::units::signed_difference;
use crate::base::warning::words;
use crate::stacks::frames::{FrameList, StackReader};
use crate::stacks::matching::{FrameTable, MatchedBy, Pair};

words! {
    /// What became of a stack or a line.
    pub enum Status {
        /// Holds memory only after
        New = "new",
        /// Holds memory only before
        Gone = "gone",
        /// Holds more bytes, or as many in more blocks
        Grown = "grown",
        /// Holds fewer bytes, or as many in fewer blocks
        Shrunk = "shrunk",
    }
}

/// What is held on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HeldChange {
    /// Bytes before.
    pub before_bytes: u64,
    /// Bytes after.
    pub after_bytes: u64,
    /// After less before.
    pub delta_bytes: i64,
    /// Live blocks before.
    pub before_blocks: u64,
    /// Live blocks after.
    pub after_blocks: u64,
}

impl HeldChange {
    fn add(&mut self, side: usize, bytes: u64, blocks: u64) {
        let (all_bytes, all_blocks) = match side {
            0 => (&mut self.before_bytes, &mut self.before_blocks),
            _ => (&mut self.after_bytes, &mut self.after_blocks),
        };
        *all_bytes = all_bytes.saturating_add(bytes);
        *all_blocks += blocks;
        self.delta_bytes = signed_difference(self.before_bytes, self.after_bytes);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.add(0, other.before_bytes, other.before_blocks);
        self.add(1, other.after_bytes, other.after_blocks);
    }

    /// What became of it; `None` where nothing changed.
    fn status(&self) -> Option<Status> {
        let (before, after) =
            ((self.before_bytes, self.before_blocks), (self.after_bytes, self.after_blocks));
        match (self.before_blocks, self.after_blocks) {
            _ if before == after => None,
            (0, _) => Some(Status::New),
            (_, 0) => Some(Status::Gone),
            _ if after > before => Some(Status::Grown),
            _ => Some(Status::Shrunk),
        }
    }
}

/// A stack that holds more or less than before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackChange {
    /// What became of it.
    pub status: Status,
    /// How the one was found to be the other; `None` for one that is new or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<MatchedBy>,
    /// How much.
    #[serde(flatten)]
    pub held: HeldChange,
    /// The whole stack, innermost first, as it is after; as it was before when it is gone.
    pub frames: FrameList,
    /// As it was before, where lines or files moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<FrameList>,
}

/// How many stacks there are, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StackCounts {
    /// Only after.
    pub new: u64,
    /// Only before.
    pub gone: u64,
    /// Hold more.
    pub grown: u64,
    /// Hold less.
    pub shrunk: u64,
    /// Hold as much.
    pub unchanged: u64,
    /// Of them all, those on other lines or in other files than before.
    pub moved: u64,
}

/// All rows that are not listed, those that did not change included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Others {
    /// How many.
    pub count: u64,
    /// How much.
    #[serde(flatten)]
    pub held: HeldChange,
}

impl Others {
    pub(super) fn add(&mut self, held: &HeldChange) {
        self.count += 1;
        self.held.merge(held);
    }
}

/// One stack of both sides, or of one.
#[derive(Debug, Clone)]
pub struct HeldOnBothSides {
    /// How much.
    pub held: HeldChange,
    /// The stack as it is after; as it was before when it is gone.
    pub frames: FrameList,
}

/// What both sides of a device's holders are read with.
pub(super) struct Holders<'a> {
    pub(super) readers: [&'a StackReader<'a>; 2],
    pub(super) words: &'a FrameTable,
    pub(super) sides: [&'a ComparedMemory; 2],
    pub(super) pairs: &'a [Pair],
}

/// The rows that changed, most first, up to `top`; the rest in a sum.
pub(super) fn listed<T>(
    mut rows: Vec<(HeldChange, T)>,
    top: usize,
) -> (Vec<(Status, HeldChange, T)>, Others) {
    // Ties stay in the order of the files.
    rows.sort_by_key(|(held, _)| {
        Reverse((held.delta_bytes.unsigned_abs(), held.before_bytes.max(held.after_bytes)))
    });
    let (mut shown, mut others) = (Vec::new(), Others::default());
    for (held, row) in rows {
        match held.status() {
            Some(status) if shown.len() < top => shown.push((status, held, row)),
            _ => others.add(&held),
        }
    }
    (shown, others)
}

impl<'a> Holders<'a> {
    pub(super) fn stacks(&self, pair: &Pair) -> [Option<&'a HeldStack>; 2] {
        [0, 1].map(|side| pair.rows[side].and_then(|row| self.sides[side].stacks.get(row)))
    }

    pub(super) fn held(&self, pair: &Pair) -> HeldChange {
        let mut held = HeldChange::default();
        for (side, stack) in self.stacks(pair).into_iter().enumerate() {
            if let Some(stack) = stack {
                held.add(side, stack.bytes, stack.blocks);
            }
        }
        held
    }

    fn frames(&self, pair: &Pair) -> [Option<FrameList>; 2] {
        let stacks = self.stacks(pair);
        [0, 1].map(|side| stacks[side].map(|stack| self.readers[side].frame_list(stack.id)))
    }

    /// What became of all of them.
    pub(super) fn counts(&self) -> StackCounts {
        let mut counts = StackCounts::default();
        for pair in self.pairs {
            *match self.held(pair).status() {
                Some(Status::New) => &mut counts.new,
                Some(Status::Gone) => &mut counts.gone,
                Some(Status::Grown) => &mut counts.grown,
                Some(Status::Shrunk) => &mut counts.shrunk,
                None => &mut counts.unchanged,
            } += 1;
            counts.moved += u64::from(pair.matched_by.is_some_and(|by| by != MatchedBy::Content));
        }
        counts
    }

    /// The stacks that changed, most first, up to `top`, and the sum of all others.
    pub(super) fn by_stack(&self, top: usize) -> (Vec<StackChange>, Others) {
        let rows = self.pairs.iter().map(|pair| (self.held(pair), pair)).collect();
        let (shown, others) = listed(rows, top);
        let rows = shown.into_iter().filter_map(|(status, held, pair)| {
            let [before, after] = self.frames(pair);
            let moved = pair.matched_by.is_some_and(|by| by != MatchedBy::Content);
            let moved_from = before.clone().filter(|_| moved);
            let matched_by = pair.matched_by;
            let frames = after.or(before)?;
            Some(StackChange { status, matched_by, held, frames, moved_from })
        });
        (rows.collect(), others)
    }

    /// Every stack, for a flame graph.
    pub(super) fn all(&self) -> Vec<HeldOnBothSides> {
        let of = |pair: &Pair| {
            let [before, after] = self.frames(pair);
            Some(HeldOnBothSides { held: self.held(pair), frames: after.or(before)? })
        };
        self.pairs.iter().filter_map(of).collect()
    }
}
