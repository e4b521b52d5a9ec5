//! Who holds the memory: live blocks by the stack, and by the line, that allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::frames::{FrameList, FrameReport, StackReader};
use crate::ids::{FrameId, StackId};
use crate::snapshot::{BlockState, Snapshot};
use crate::units::ratio;

/// Live memory that one stack allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldByStack {
    /// Bytes in its live blocks.
    pub bytes: u64,
    /// Its live blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
    /// The whole stack, innermost first; empty when none was recorded.
    pub frames: FrameList,
}

/// Live memory that one line of the user's code allocated, by whatever way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldByLine {
    /// Bytes in its live blocks.
    pub bytes: u64,
    /// Its live blocks.
    pub blocks: u64,
    /// Of all allocated bytes.
    pub share_ratio: f64,
    /// The line; `None` gathers stacks without one (autograd threads, no stack recorded).
    pub frame: Option<FrameReport>,
    /// What the largest of its stacks was doing, as far as the stack tells.
    pub operation: Option<String>,
}

#[derive(Default, Clone, Copy)]
struct Held {
    bytes: u64,
    blocks: u64,
}

impl Held {
    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.blocks += more.blocks;
    }
}

/// The largest first; ties in the order of first appearance, which the file fixes.
fn ranked<K: Copy + Ord>(held: FxHashMap<K, Held>, top: usize) -> Vec<(K, Held)> {
    let mut ranked: Vec<(K, Held)> = held.into_iter().collect();
    ranked.sort_by_key(|(key, held)| (std::cmp::Reverse(held.bytes), *key));
    ranked.truncate(top);
    ranked
}

/// The `top` stacks and the `top` lines that hold most of what is allocated on `device`.
pub(super) fn holders(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    device: u64,
    top: usize,
) -> (Vec<HeldByStack>, Vec<HeldByLine>) {
    let mut by_stack: FxHashMap<StackId, Held> = FxHashMap::default();
    let mut all = 0u64;
    for segment in snapshot.segments.iter().filter(|s| s.device == device) {
        for block in snapshot.blocks.get(segment.blocks.clone()).unwrap_or_default() {
            if block.state == BlockState::ActiveAllocated {
                by_stack.entry(block.stack).or_default().add(Held { bytes: block.size, blocks: 1 });
                all = all.saturating_add(block.size);
            }
        }
    }
    let mut by_line: FxHashMap<Option<FrameId>, (Held, StackId)> = FxHashMap::default();
    let ranked_stacks = ranked(by_stack, usize::MAX);
    for (stack, held) in &ranked_stacks {
        // The first stack of a line is its largest.
        let line = by_line.entry(stacks.culprit_id(*stack)).or_insert((Held::default(), *stack));
        line.0.add(*held);
    }
    let largest: FxHashMap<Option<FrameId>, StackId> =
        by_line.iter().map(|(line, (_, stack))| (*line, *stack)).collect();
    let lines = ranked(by_line.into_iter().map(|(line, (held, _))| (line, held)).collect(), top);

    let stacks_report = ranked_stacks.iter().take(top).map(|(stack, held)| HeldByStack {
        bytes: held.bytes,
        blocks: held.blocks,
        share_ratio: ratio(held.bytes, all),
        frames: stacks.whole(*stack),
    });
    let lines_report = lines.into_iter().map(|(line, held)| {
        let stack = largest.get(&line).copied().unwrap_or_default();
        HeldByLine {
            bytes: held.bytes,
            blocks: held.blocks,
            share_ratio: ratio(held.bytes, all),
            frame: line.and_then(|_| stacks.culprit(stack)),
            operation: stacks.operation(stack),
        }
    });
    (stacks_report.collect(), lines_report.collect())
}
