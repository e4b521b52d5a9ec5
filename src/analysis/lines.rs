//! Which lines of the user's code a figure is made of, where no report says so already.

use crate::base::ids::{FrameId, StackId};
use crate::replay::literal::Tracking;
use crate::snapshot::{Block, BlockState};
use crate::stacks::frames::{FrameReport, StackReader};
use crate::study::DeviceStudy;
use crate::study::memory::{BlockSum, BlockSums, sum_by_key, top_rows};

/// What is added up by line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contribution {
    /// Blocks that the program holds at the snapshot.
    Held,
    /// Blocks that the program holds after this entry of the trace; before its first where there is none.
    HeldAfter(Option<u64>),
    /// The same, and those that it freed and that wait for another stream.
    InUseAfter(Option<u64>),
    /// Rounding, of the blocks in use at the snapshot.
    Rounding,
    /// Free memory beside live blocks at the snapshot: joined or given back without them.
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

/// The `top` lines of `device` by what is added up, the largest first.
pub fn lines(device: DeviceStudy<'_, '_>, of: Contribution, top: usize) -> Vec<LineShare> {
    let stacks = device.stacks();
    let held = match of {
        Contribution::Held => device.live_by_stack().clone(),
        Contribution::HeldAfter(entry) => {
            in_use_after(device, entry, |state| state == BlockState::ActiveAllocated)
        }
        Contribution::InUseAfter(entry) => in_use_after(device, entry, |_| true),
        Contribution::Rounding => {
            let used = device.device().blocks().filter(|block| block.state != BlockState::Inactive);
            let rounding =
                used.map(|b| (b.extended_stack, b.size.saturating_sub(b.requested_size)));
            sum_by_key(rounding.filter(|(_, bytes)| *bytes > 0))
        }
        Contribution::KeptApart => {
            let blocks_of = |segment| device.snapshot().blocks_of(segment);
            let segments = device.device().segments();
            let kept = segments.flat_map(|s| kept_apart(blocks_of(s), stacks));
            sum_by_key(kept.filter(|(_, bytes)| *bytes > 0))
        }
    };
    let mut own: BlockSums<FrameId> = BlockSums::default();
    for (stack, sum) in held {
        if let Some(line) = stacks.user_frame(stack) {
            let held = own.entry(line).or_default();
            *held = held.plus(sum);
        }
    }
    // Shares of the whole are not asked for.
    let share =
        |line, sum: BlockSum| LineShare { frame: stacks.frame_report(line), bytes: sum.bytes };
    top_rows(own, BlockSum::default(), top, share).rows
}

/// What each stack has in blocks of the wanted states after an entry.
fn in_use_after(
    device: DeviceStudy<'_, '_>,
    entry: Option<u64>,
    is_wanted: fn(BlockState) -> bool,
) -> BlockSums<StackId> {
    let mut held = BlockSums::default();
    device.replay(Tracking::Totals, |step| {
        if step.entry.map(|(index, _)| index as u64) == entry {
            let blocks =
                step.tiling.active_blocks().filter(|(_, _, _, state, _)| is_wanted(*state));
            held = sum_by_key(blocks.map(|(_, size, _, _, stack)| (stack, size)));
        }
    });
    held
}

/// Every free block of a segment with the stacks of the blocks beside it, one of two on the same line.
fn kept_apart(blocks: &[Block], stacks: &StackReader<'_>) -> Vec<(StackId, u64)> {
    let is_free = |block: &&Block| block.state == BlockState::Inactive;
    let mut kept = Vec::new();
    for (index, free) in blocks.iter().enumerate().filter(|(_, block)| is_free(block)) {
        let beside = [index.checked_sub(1), index.checked_add(1)];
        let beside = beside.into_iter().flatten().filter_map(|index| blocks.get(index));
        let mut beside: Vec<StackId> =
            beside.filter(|block| !is_free(block)).map(|block| block.extended_stack).collect();
        beside.dedup_by_key(|stack| stacks.user_frame(*stack));
        kept.extend(beside.into_iter().map(|stack| (stack, free.size)));
    }
    kept
}
