//! Which lines of the user's code a figure is made of.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::frames::{FrameReport, StackReader};
use crate::conf::Settings;
use crate::ids::{FrameId, StackId};
use crate::replay::Literal;
use crate::snapshot::{Block, BlockState, Snapshot};

/// What the bytes of a line are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Allocated at the snapshot.
    Held,
    /// Allocated after this entry of the trace; before its first where there is none.
    HeldAfter(Option<u64>),
    /// Rounding, of the blocks in use at the snapshot.
    Rounding,
    /// Free beside its blocks at the snapshot: joined or given back without them.
    KeptApart,
}

/// One line of the user's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineShare {
    /// The line.
    pub frame: FrameReport,
    /// Its bytes.
    pub bytes: u64,
}

/// The `top` lines of `device` by `share`, the largest first.
pub fn lines(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    settings: &Settings,
    device: u64,
    share: Share,
    top: usize,
) -> Vec<LineShare> {
    let blocks = || blocks_of(snapshot, device).flatten();
    match share {
        Share::Held => {
            let held = blocks().filter(|block| block.state == BlockState::ActiveAllocated);
            by_line(held.map(|block| (block.stack, block.size)), stacks, top)
        }
        Share::Rounding => {
            let used = blocks().filter(|block| block.state != BlockState::Inactive);
            let over = |block: &Block| block.size.saturating_sub(block.requested_size);
            by_line(used.map(|block| (block.stack, over(block))), stacks, top)
        }
        Share::HeldAfter(event) => {
            let Ok(device) = usize::try_from(device) else { return Vec::new() };
            let mut found = Vec::new();
            Literal { snapshot, device, settings }.run(false, |step| {
                if step.entry.map(|(index, _)| index as u64) == event {
                    let live = step.tiling.neighbourhoods().filter(|(block, _)| !block.is_free);
                    found = by_line(live.map(|(block, _)| (block.stack, block.size)), stacks, top);
                }
            });
            found
        }
        Share::KeptApart => {
            let kept = blocks_of(snapshot, device).flat_map(|blocks| kept_apart(blocks, stacks));
            by_line(kept, stacks, top)
        }
    }
}

/// The blocks of every segment.
fn blocks_of(snapshot: &Snapshot, device: u64) -> impl Iterator<Item = &[Block]> {
    let own = snapshot.segments.iter().filter(move |segment| segment.device == device);
    own.map(|segment| snapshot.blocks.get(segment.blocks.clone()).unwrap_or_default())
}

/// Every free block of a segment with the stacks of the blocks beside it, one of two on the same line.
fn kept_apart(blocks: &[Block], stacks: &StackReader<'_>) -> Vec<(StackId, u64)> {
    let is_free = |block: &&Block| block.state == BlockState::Inactive;
    let mut kept = Vec::new();
    for (index, free) in blocks.iter().enumerate().filter(|(_, block)| is_free(block)) {
        let beside = [index.checked_sub(1), index.checked_add(1)];
        let beside = beside.into_iter().flatten().filter_map(|index| blocks.get(index));
        let mut beside: Vec<StackId> =
            beside.filter(|block| !is_free(block)).map(|block| block.stack).collect();
        beside.dedup_by_key(|stack| stacks.culprit_id(*stack));
        kept.extend(beside.into_iter().map(|stack| (stack, free.size)));
    }
    kept
}

fn by_line(
    bytes: impl Iterator<Item = (StackId, u64)>,
    stacks: &StackReader<'_>,
    top: usize,
) -> Vec<LineShare> {
    let mut sums: FxHashMap<FrameId, (u64, StackId)> = FxHashMap::default();
    for (stack, bytes) in bytes {
        if let Some(line) = stacks.culprit_id(stack) {
            let sum = sums.entry(line).or_insert((0, stack));
            sum.0 = sum.0.saturating_add(bytes);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, (bytes, _))| *bytes > 0).collect();
    sums.sort_by_key(|(line, (bytes, _))| (Reverse(*bytes), *line));
    let share = |(_, (bytes, stack))| stacks.culprit(stack).map(|frame| LineShare { frame, bytes });
    sums.into_iter().take(top).filter_map(share).collect()
}
