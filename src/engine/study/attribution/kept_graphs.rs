//! Graphs that stay after their backward pass, because the program keeps a result with its history.

use std::ops::Range;

use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::snapshot::Action;
use crate::stacks::frames::FrameReport;
use crate::stacks::phases::Phase;
use crate::study::DeviceStudy;
use crate::study::iterations::GrowthKind;
use crate::study::memory::BlockSum;

/// A graph is kept if at least 1/this of the bytes that a forward pass saves for the backward pass stays.
const MIN_KEPT_BYTES_PARTS: u64 = 2;
/// Same for its blocks: a kept output may have many of the bytes, but it is one block of many.
const MIN_KEPT_BLOCKS_PARTS: u64 = 3;
/// Graphs explain growth if they keep at least this part of it.
const MIN_EXPLAINED_PARTS: u64 = 2;
/// Requests for one element are at most this large.
const MAX_SCALAR_BYTES: u64 = 8;

/// Graphs that stay after the iteration that made them, although a backward pass followed.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptGraphs {
    /// Bytes that each step leaves.
    pub bytes_per_step: u64,
    /// The line that makes the last kept result of a forward pass: its value suffices, without its graph.
    pub result_at: Option<FrameReport>,
    /// Whether that result is a single number, such as a loss.
    pub is_scalar: bool,
}

/// A block of one iteration that no backward pass and no optimizer made.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
struct OwnBlock {
    extended_stack: StackId,
    bytes: u64,
    /// Number of forward passes that had begun when it was allocated.
    forward_pass: usize,
    /// Made within that pass, not after it.
    is_forward: bool,
    /// A module made it.
    made_by_module: bool,
    /// The program made it as an input of the next pass.
    is_input: bool,
    /// A backward pass started while it was live.
    is_saved: bool,
    is_freed: bool,
}

impl OwnBlock {
    fn is_kept(&self) -> bool {
        self.is_saved && !self.is_freed && !self.is_input
    }
}

impl KeptGraphs {
    /// The graphs by which the memory of `device` grows, in the last iteration that is followed by a complete one.
    pub fn from_device(device: DeviceStudy<'_, '_>) -> Option<Self> {
        let growth = device.growth().filter(|growth| growth.kind == GrowthKind::Kept)?;
        let [.., start, end, until] = *growth.start_entries.as_slice() else { return None };
        let mut blocks = own_blocks(device, start..end, until);
        let (stacks, frames) = (device.stacks(), &device.snapshot().stacks);
        // Code above the model's call, in the same function, makes the input of the next pass of the loop.
        for pass in blocks.chunk_by_mut(|block, next| block.forward_pass == next.forward_pass) {
            let Some(call) = pass.iter().find_map(|block| stacks.model_call(block.extended_stack)) else { continue };
            let call = frames.frame(call);
            for block in pass {
                block.made_by_module = stacks.model_call(block.extended_stack).is_some();
                block.is_input = stacks
                    .user_frame(block.extended_stack)
                    .map(|id| frames.frame(id))
                    .is_some_and(|own| (own.file, own.name) == (call.file, call.name) && own.line < call.line);
            }
        }
        let min_bytes = growth.rate.bytes_per_iteration.div_ceil(MIN_EXPLAINED_PARTS);
        let (pass, _) = kept_pass(&blocks).filter(|(_, bytes)| *bytes >= min_bytes)?;
        // The result is made last, by the model or by the program after it.
        let result = blocks.iter().rfind(|block| block.forward_pass == pass && block.is_kept())?;
        let stack = result.extended_stack;
        let result_at = stacks.model_call(stack).or_else(|| stacks.user_frame(stack));
        Some(Self {
            bytes_per_step: growth.bytes_per_step(),
            result_at: result_at.map(|id| stacks.frame_report(id)),
            is_scalar: result.bytes <= MAX_SCALAR_BYTES,
        })
    }
}

/// The forward pass whose graph keeps most bytes, and the bytes that all such graphs keep.
fn kept_pass(blocks: &[OwnBlock]) -> Option<(usize, u64)> {
    let passes = blocks.chunk_by(|block, next| block.forward_pass == next.forward_pass);
    let graphs = passes.filter_map(|pass| {
        let saved = pass.iter().filter(|block| block.is_saved && block.is_forward && !block.is_input);
        let kept = BlockSum::from_sizes(saved.clone().filter(|block| block.is_kept()).map(|block| block.bytes));
        let saved = BlockSum::from_sizes(saved.map(|block| block.bytes));
        // If modules made blocks, some of these are in the graph.
        let has_modules = pass.iter().any(|block| block.made_by_module);
        let is_graph = (!has_modules || pass.iter().any(|block| block.made_by_module && block.is_kept()))
            && kept.blocks > 1
            && kept.blocks * MIN_KEPT_BLOCKS_PARTS >= saved.blocks
            && kept.bytes.saturating_mul(MIN_KEPT_BYTES_PARTS) >= saved.bytes;
        is_graph.then_some((pass.first()?.forward_pass, kept.bytes))
    });
    let graphs: Vec<(usize, u64)> = graphs.collect();
    let sum = graphs.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    graphs.iter().max_by_key(|(_, bytes)| *bytes).map(|(pass, _)| (*pass, sum))
}

/// The blocks that the program or its forward passes make in `iteration`, in their state before entry `until`.
fn own_blocks(device: DeviceStudy<'_, '_>, iteration: Range<usize>, until: usize) -> Vec<OwnBlock> {
    let (trace, phases) = (device.device(), device.phases());
    let mut blocks: Vec<OwnBlock> = Vec::new();
    let mut live: SeededMap<u64, usize> = SeededMap::default();
    let mut before_pass = 0; // number of blocks that were made before the last backward pass
    for index in iteration.start..until {
        let entry = trace.entry(index);
        let made_in = phases.stack_traits(entry.stack).phase;
        match entry.action {
            Action::Alloc if made_in == Some(Phase::Backward) => {
                for block in &mut blocks[before_pass..] {
                    block.is_saved = !block.is_freed;
                }
                before_pass = blocks.len();
            }
            Action::Alloc if made_in != Some(Phase::Optimizer) && iteration.contains(&index) => {
                live.insert(entry.addr, blocks.len());
                blocks.push(OwnBlock {
                    extended_stack: entry.extended_stack,
                    bytes: entry.size,
                    forward_pass: phases.forwards_begun(index),
                    is_forward: phases.phase_at(index) == Phase::Forward,
                    ..OwnBlock::default()
                });
            }
            Action::FreeRequested | Action::FreeCompleted => {
                if let Some(block) = live.remove(&entry.addr) {
                    blocks[block].is_freed = true;
                }
            }
            _ => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(forward_pass: usize, bytes: u64, is_freed: bool) -> OwnBlock {
        OwnBlock { bytes, forward_pass, is_forward: true, is_saved: true, is_freed, ..OwnBlock::default() }
    }

    fn pass(kept: [u64; 2], freed: &[u64]) -> Option<(usize, u64)> {
        let freed = freed.iter().map(|bytes| block(1, *bytes, true));
        kept_pass(&kept.map(|bytes| block(1, bytes, false)).into_iter().chain(freed).collect::<Vec<_>>())
    }

    #[test]
    fn a_graph_is_kept_if_enough_of_its_blocks_and_bytes_are() {
        assert_eq!(pass([60, 40], &[50, 50]), Some((1, 100)), "half of the bytes");
        assert_eq!(pass([60, 40], &[50, 51]), None);
        assert_eq!(pass([60, 40], &[25; 4]), Some((1, 100)), "a third of the blocks");
        assert_eq!(pass([60, 40], &[20; 5]), None);
        assert_eq!(kept_pass(&[block(1, 9, false), block(1, 1, true)]), None, "one output");
        let passes = [(1, 5), (1, 5), (2, 7), (2, 7), (3, 6), (3, 6)].map(|(pass, bytes)| block(pass, bytes, false));
        assert_eq!(kept_pass(&passes), Some((2, 36)), "most bytes");
    }
}
