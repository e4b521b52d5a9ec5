//! Freeing gradients before the next forward pass.
//!
//! If gradients are never freed, a backward pass allocates each again and adds it to the old one. Without the old one
//! it keeps the new one. The position among the requests of one size shows which new gradient belongs to which old one.

use rustc_hash::{FxHashMap, FxHashSet};

use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
use crate::replay::ops::{ScriptOp, ScriptOpKind};
use crate::study::attribution::Category;
use crate::whatif::sureness::Sureness;

/// Frees each gradient before the first forward pass of the next step.
pub(super) fn drop_gradients(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let passes = find_passes(recording);
    let (categories, backward_requests) = (recording.categories(), BackwardRequests::new(recording, &passes));
    let blocks = &recording.script.blocks;
    // Keeps a pass if its forward pass is the first of a step other than the one before.
    let starts_step = |pass_index: usize| {
        let step = |pass: &Pass| recording.step_at(pass.forward.start);
        let (step, previous) = (step(passes.get(pass_index)?), step(passes.get(pass_index.checked_sub(1)?)?));
        (step.is_some() && step != previous).then_some(pass_index)
    };
    let mut moved_frees: FxHashMap<u32, Vec<ScriptOp>> = FxHashMap::default();
    let mut freed_gradients: FxHashSet<u32> = FxHashSet::default();
    let mut changed_blocks: FxHashSet<u32> = FxHashSet::default();
    for (block_index, block) in blocks.iter().enumerate() {
        // A gradient from before the trace has no request that could have a counterpart in later steps.
        let Some(allocated_at) = block.allocated_at else { continue };
        if categories[block_index] != Category::Gradients || block.is_failed {
            continue;
        }
        let freed_at = block.freed_at.unwrap_or(u32::MAX);
        let after = passes.partition_point(|pass| pass.forward.start <= allocated_at);
        let Some(first_pass) = after.checked_sub(1) else { continue }; // allocated before the first pass
        let mut gradient = to_u32(block_index);
        for pass_index in (first_pass + 1..passes.len()).filter_map(starts_step) {
            let pass = &passes[pass_index];
            if pass.forward.start >= freed_at {
                break;
            }
            moved_frees.entry(pass.forward.start).or_default().push(free_before(pass, gradient));
            changed_blocks.insert(to_u32(block_index));
            freed_gradients.insert(gradient);
            if freed_at <= pass.backward.start {
                break;
            }
            gradient = backward_requests.counterpart(block.bytes, (first_pass, pass_index), to_u32(block_index))?;
            freed_gradients.insert(gradient);
        }
    }
    if changed_blocks.is_empty() {
        return None;
    }
    let mut script = recording.script.clone();
    script.ops.clear();
    for op in &recording.script.ops {
        script.ops.extend(moved_frees.remove(&op.source).into_iter().flatten());
        match op.kind {
            ScriptOpKind::Free { block, .. } if freed_gradients.contains(&block) => {}
            _ => script.ops.push(*op),
        }
    }
    let change = (ProgramChange::GradientsGone, Sureness::Should);
    let is_changed = |block: u32| changed_blocks.contains(&block);
    Some(recording.changed(change, "call zero_grad(set_to_none=True) right after each step", is_changed, script))
}

fn free_before(pass: &Pass, block: u32) -> ScriptOp {
    let source = pass.forward.start.saturating_sub(1);
    ScriptOp { source, kind: ScriptOpKind::Free { block, is_moved: true } }
}

/// The blocks that each backward pass requests, by size, in order.
struct BackwardRequests {
    passes: Vec<SeededMap<u64, Vec<u32>>>,
    /// The index of each block among the blocks of its size in its pass.
    positions: FxHashMap<u32, usize>,
}

impl BackwardRequests {
    fn new(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Self {
        let mut positions = FxHashMap::default();
        let mut by_size_in = |pass: &Pass| {
            let range = pass.backward.start as usize..pass.backward.end as usize;
            let mut by_size: SeededMap<u64, Vec<u32>> = SeededMap::default();
            for op in &recording.script.ops[range] {
                let ScriptOpKind::Alloc(block) = op.kind else { continue }; // not a request
                let bytes = recording.script.blocks[block as usize].bytes;
                let same_size = by_size.entry(bytes).or_default();
                positions.insert(block, same_size.len());
                same_size.push(block);
            }
            by_size
        };
        let passes = passes.iter().map(&mut by_size_in).collect();
        Self { passes, positions }
    }

    /// The block that pass `later` requests in the position that `gradient` has in pass `first`; `None` if the two
    /// passes request different numbers of blocks of its size, `bytes`.
    fn counterpart(&self, bytes: u64, (first, later): (usize, usize), gradient: u32) -> Option<u32> {
        let (first, later) = (self.passes[first].get(&bytes)?, self.passes[later].get(&bytes)?);
        let position = *self.positions.get(&gradient)?;
        if first.len() == later.len() { later.get(position).copied() } else { None }
    }
}
