//! Freeing what a training step leaves behind at its end: a loss that is kept with its graph, or outputs that stay
//! alive until the next step assigns the same variable.

use rustc_hash::{FxHashMap, FxHashSet};

use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::{StackId, to_u32};
use crate::replay::ops::{ScriptOp, ScriptOpKind};
use crate::study::attribution::Category;
use crate::whatif::Sureness;

/// Leftovers of less than 1/1000 of the peak are ignored: most programs leave a scalar loss behind.
const MIN_LEFTOVER_PARTS: u64 = 1000;

/// Frees blocks that a stack leaves behind in several steps at the end of each step.
pub(super) fn free_leftovers(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let categories = recording.categories();
    // A block that a stack allocates in a single step may be meant to stay: a cache or a buffer.
    let mut steps: FxHashMap<StackId, FxHashSet<u32>> = FxHashMap::default();
    let mut leftovers: Vec<(u32, u32)> = Vec::new();
    for (index, block) in recording.script.blocks.iter().enumerate() {
        let can_be_leftover =
            matches!(categories[index], Category::Activations | Category::Temporaries | Category::Other);
        let step = block.allocated_at.and_then(|op| recording.step_at(op));
        // Blocks from outside a step, such as the model's, are meant to stay.
        let Some(step) = step.filter(|_| can_be_leftover && !block.is_failed) else { continue };
        if recording.outlives_step(block, step) {
            steps.entry(recording.allocation_stack(to_u32(index))).or_default().insert(step);
            leftovers.push((to_u32(index), step));
        }
    }
    let last_step = recording.script.ops.last().and_then(|op| recording.step_at(op.source))?;
    leftovers.retain(|(block, step)| {
        *step < last_step && steps.get(&recording.allocation_stack(*block)).is_some_and(|steps| steps.len() > 1)
    });
    let bytes = leftovers.iter().fold(0u64, |sum, leftover| sum.saturating_add(recording.rounded_bytes(leftover.0)));
    if leftovers.is_empty() || bytes < recording.peak.bytes / MIN_LEFTOVER_PARTS {
        return None;
    }
    // The last request of each step.
    let requests = recording.script.ops.iter().filter(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let last_op_of_step: FxHashMap<u32, u32> =
        requests.filter_map(|op| Some((recording.step_at(op.source)?, op.source))).collect();
    let mut moved_frees: FxHashMap<u32, Vec<ScriptOp>> = FxHashMap::default();
    for (block, step) in &leftovers {
        let source = *last_op_of_step.get(step)?;
        moved_frees.entry(source).or_default().push(ScriptOp::moved_free(source, *block));
    }
    let mut script = recording.script.clone();
    script.ops.clear();
    for op in &recording.script.ops {
        script.ops.push(*op);
        script.ops.extend(moved_frees.remove(&op.source).into_iter().flatten());
    }
    let change = (ProgramChange::LeftBehind, Sureness::Checked);
    let description = "free what each step leaves behind (del)";
    let leftovers: FxHashSet<u32> = leftovers.into_iter().map(|(block, _)| block).collect();
    Some(recording.changed(change, description, |block| leftovers.contains(&block), script))
}
