//! Changes of live memory by stack.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use super::moment::{ComparedMemory, LiveStack};
use crate::base::units::signed_difference;
use crate::base::warning::words;
use crate::stacks::frames::{FrameList, FrameReport, StackReader};
use crate::stacks::matching::{FrameTable, MatchedBy, Pair};

words! {
    /// The change of a stack or line.
    pub enum Status {
        /// Holds memory only after
        New = "new",
        /// Holds memory only before
        Gone = "gone",
        /// Holds more bytes, or as many bytes in more blocks
        Grown = "grown",
        /// Holds fewer bytes, or as many bytes in fewer blocks
        Shrunk = "shrunk",
    }
}

/// Live memory before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LiveChange {
    /// Live bytes before.
    pub before_bytes: u64,
    /// Live bytes after.
    pub after_bytes: u64,
    /// `after_bytes` minus `before_bytes`.
    pub delta_bytes: i64,
    /// Live blocks before.
    pub before_blocks: u64,
    /// Live blocks after.
    pub after_blocks: u64,
}

impl LiveChange {
    pub(super) fn add(&mut self, side: usize, bytes: u64, blocks: u64) {
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

    /// `None` if nothing changed.
    fn status(&self) -> Option<Status> {
        let (before, after) = ((self.before_bytes, self.before_blocks), (self.after_bytes, self.after_blocks));
        match (self.before_blocks, self.after_blocks) {
            _ if before == after => None,
            (0, _) => Some(Status::New),
            (_, 0) => Some(Status::Gone),
            _ if after > before => Some(Status::Grown),
            _ => Some(Status::Shrunk),
        }
    }
}

/// A stack whose live memory changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackChange {
    /// The kind of change.
    pub status: Status,
    /// How the stacks of both snapshots were matched; absent for new and gone ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<MatchedBy>,
    /// Live memory before and after.
    #[serde(flatten)]
    pub held: LiveChange,
    /// The stack after, innermost frame first; the stack before if it is gone.
    #[serde(flatten)]
    pub frames: FrameList,
    /// The stack before; absent if its lines and files are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<Arc<[FrameReport]>>,
}

/// The sum of all rows that are not listed, including unchanged ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OtherRows {
    /// Number of rows.
    pub count: u64,
    /// Their live memory before and after.
    #[serde(flatten)]
    pub held: LiveChange,
}

impl OtherRows {
    pub(crate) fn add(&mut self, held: &LiveChange) {
        self.count += 1;
        self.held.merge(held);
    }
}

/// The holders of a device's memory in both snapshots.
pub(super) struct DeviceHolders<'a> {
    pub(super) readers: [&'a StackReader<'a>; 2],
    pub(super) words: &'a FrameTable,
    pub(super) sides: [&'a ComparedMemory; 2],
    pub(super) pairs: &'a [Pair],
}

/// Splits off the `top` rows with the largest changes, and sums up the rest.
pub(super) fn split_listed<T>(mut rows: Vec<(LiveChange, T)>, top: usize) -> (Vec<(Status, LiveChange, T)>, OtherRows) {
    // A stable sort, so that ties stay in the order of the files.
    rows.sort_by_key(|(held, _)| Reverse((held.delta_bytes.unsigned_abs(), held.before_bytes.max(held.after_bytes))));
    let (mut shown, mut others) = (Vec::new(), OtherRows::default());
    for (held, row) in rows {
        match held.status() {
            Some(status) if shown.len() < top => shown.push((status, held, row)),
            _ => others.add(&held),
        }
    }
    (shown, others)
}

impl<'a> DeviceHolders<'a> {
    pub(super) fn stacks(&self, pair: &Pair) -> [Option<&'a LiveStack>; 2] {
        [0, 1].map(|side| pair.rows[side].and_then(|row| self.sides[side].stacks.get(row)))
    }

    pub(super) fn held(&self, pair: &Pair) -> LiveChange {
        let mut held = LiveChange::default();
        for (side, stack) in self.stacks(pair).into_iter().enumerate() {
            if let Some(stack) = stack {
                held.add(side, stack.bytes, stack.blocks);
            }
        }
        held
    }

    /// The `top` stacks with the largest changes, and the sum of all others.
    pub(super) fn by_stack(&self, top: usize) -> (Vec<StackChange>, OtherRows) {
        let rows = self.pairs.iter().map(|pair| (self.held(pair), pair)).collect();
        let (shown, others) = split_listed(rows, top);
        let rows = shown.into_iter().filter_map(|(status, held, pair)| {
            let stacks = self.stacks(pair);
            let [before, after] = [0, 1].map(|side| stacks[side].map(|stack| self.readers[side].frame_list(stack.id)));
            let moved = pair.matched_by.is_some_and(|by| by != MatchedBy::Content);
            let moved_from = before.clone().filter(|_| moved).map(|before| before.frames);
            let matched_by = pair.matched_by;
            let frames = after.or(before)?;
            Some(StackChange { status, matched_by, held, frames, moved_from })
        });
        (rows.collect(), others)
    }
}
