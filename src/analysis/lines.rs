//! The source lines that contribute most to a figure.

use crate::base::ids::StackId;
use crate::replay::literal::Tracking;
use crate::snapshot::{Block, BlockState};
use crate::stacks::frames::{FrameReport, StackReader};
use crate::study::DeviceStudy;
use crate::study::memory::{BlockSum, BlockSums, sum_by_key, top_rows};

/// A source line of user code and its part of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineShare {
    /// The innermost frame of user code.
    pub frame: FrameReport,
    /// Bytes of the figure that this line caused.
    pub bytes: u64,
}

/// The `top` lines with most bytes in the active blocks after `entry` that `is_counted` selects by their state, largest
/// first; `None` is the start of the trace.
pub fn lines_after(
    device: DeviceStudy<'_, '_>,
    entry: Option<u64>,
    is_counted: fn(BlockState) -> bool,
    top: usize,
) -> Vec<LineShare> {
    let mut by_stack = BlockSums::default();
    device.replay(Tracking::Totals, |step| {
        if step.at.map(|(index, _)| index as u64) == entry {
            let blocks = step.tiling.active_blocks().filter(|block| is_counted(block.state));
            by_stack = sum_by_key(blocks.map(|block| (block.context, block.size)));
        }
    });
    by_line(device, by_stack, top)
}

/// The `top` lines with most free memory beside their blocks at the snapshot, which they keep apart.
pub fn lines_beside_free(device: DeviceStudy<'_, '_>, top: usize) -> Vec<LineShare> {
    let blocks = device.device().segments().map(|segment| device.snapshot().blocks_of(segment));
    let pairs = blocks.flat_map(|blocks| stranded_beside(blocks, device.stacks()));
    by_line(device, sum_by_key(pairs.filter(|(_, bytes)| *bytes > 0)), top)
}

fn by_line(device: DeviceStudy<'_, '_>, by_stack: BlockSums<StackId>, top: usize) -> Vec<LineShare> {
    let stacks = device.stacks();
    let by_line = sum_by_key(by_stack.into_iter().filter_map(|(id, sum)| Some((stacks.user_frame(id)?, sum.bytes))));
    // The total is only needed for shares, which are not used here.
    let share = |line, sum: BlockSum| LineShare { frame: stacks.frame_report(line), bytes: sum.bytes };
    top_rows(by_line, BlockSum::default(), top, share).rows
}

/// Each free block with the stacks of its neighbours; one stack if both are of the same line.
fn stranded_beside(blocks: &[Block], stacks: &StackReader<'_>) -> Vec<(StackId, u64)> {
    let is_free = |block: &&Block| block.state == BlockState::Inactive;
    let free_blocks = blocks.iter().enumerate().filter(|(_, block)| is_free(block));
    let pairs = free_blocks.flat_map(|(index, free)| {
        let beside = [index.checked_sub(1), index.checked_add(1)];
        let beside = beside.into_iter().flatten().filter_map(|index| blocks.get(index));
        let mut beside: Vec<StackId> =
            beside.filter(|block| !is_free(block)).map(|block| block.extended_stack).collect();
        beside.dedup_by_key(|stack| stacks.user_frame(*stack));
        beside.into_iter().map(|stack| (stack, free.size))
    });
    pairs.collect()
}
