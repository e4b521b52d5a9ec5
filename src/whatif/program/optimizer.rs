//! Changes to the optimizer: no temporaries, one parameter after the other, offloaded state.
//!
//! With `foreach`, each operation makes a temporary for every parameter, and all are live at once. One parameter after
//! the other (`foreach=False`) needs the temporaries of one parameter: one for each operation, and one more, because
//! some operations are in place only with `foreach` (a division in Adam).

use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::to_u32;
use crate::replay::ops::{Script, ScriptBlock, ScriptOp, ScriptOpKind};
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;
use crate::whatif::Sureness;

/// Removes the temporaries of the optimizer's step.
pub(super) fn fuse_optimizer(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let is_temporary = find_temporaries(recording);
    let change = (ProgramChange::OptimizerTemporaries, Sureness::Checked);
    is_temporary.contains(&true).then(|| {
        recording.resized_by(change, "fuse the optimizer (fused=True)", |block| is_temporary[block as usize], |_| 0)
    })
}

/// Keeps the optimizer's state on the host, where its step then makes its temporaries.
pub(super) fn offload_state(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let categories = recording.categories();
    if !categories.contains(&Category::OptimizerState) {
        return None;
    }
    let with_temporaries = categories.iter().zip(find_temporaries(recording));
    let is_offloaded: Vec<bool> = with_temporaries
        .map(|(category, is_temporary)| *category == Category::OptimizerState || is_temporary)
        .collect();
    let change = (ProgramChange::StateOffloaded, Sureness::Estimate);
    let description = "offload optimizer state to the host";
    Some(recording.resized_by(change, description, |block| is_offloaded[block as usize], |_| 0))
}

/// For each block, whether it lives only within a step of the optimizer.
pub(super) fn find_temporaries(recording: &RecordedProgram<'_, '_>) -> Vec<bool> {
    let last_request = recording.script.ops.iter().rposition(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let are_temporary = recording.script.blocks.iter().enumerate().map(|(index, block)| {
        let Some(allocated_at) = block.allocated_at else { return false }; // older than every recorded step
        // After the last request the program may have ended, which frees everything.
        let freed_at = block.freed_at.filter(|op| last_request.is_some_and(|last| (*op as usize) < last));
        let is_freed_in_step = match freed_at {
            // A request of another phase ends the step.
            Some(freed_at) => recording.is_same_phase_run(allocated_at, freed_at),
            // In the first step it may be state as well.
            None => recording.categories()[index] == Category::Temporaries && !recording.is_guess(to_u32(index)),
        };
        is_freed_in_step
            && recording.phase_at(allocated_at) == Phase::Optimizer
            && recording.device.phases().stack_traits(block.stack).phase == Some(Phase::Optimizer)
    });
    are_temporary.collect()
}

/// Frees each temporary of a `foreach` step before the operation makes the next.
pub(super) fn step_by_parameter(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let blocks = &recording.script.blocks;
    let is_temporary = blocks.iter().zip(find_temporaries(recording)).map(|(block, is_temporary)| {
        is_temporary && recording.device.phases().stack_traits(block.stack).is_foreach_step
    });
    let is_temporary: Vec<bool> = is_temporary.collect();
    if !is_temporary.contains(&true) {
        return None;
    }
    let mut script = recording.script.clone();
    script.ops.clear();
    // The temporaries of the current parameter.
    let mut live: Vec<u32> = Vec::new();
    for op in &recording.script.ops {
        match op.kind {
            ScriptOpKind::Free { block, .. } if is_temporary[block as usize] => continue,
            ScriptOpKind::Alloc(_) => free_all(&mut live, *op, &mut script),
            ScriptOpKind::Free { .. } | ScriptOpKind::Other => {}
        }
        script.ops.push(*op);
        if let ScriptOpKind::Alloc(block) = op.kind
            && is_temporary[block as usize]
        {
            let ScriptBlock { bytes, is_failed, .. } = blocks[block as usize];
            // A failed one was only tried, and larger ones may follow.
            let bytes = if is_failed { bytes.max(largest_parameter(recording)) } else { bytes };
            live.push(if is_failed { script.push_copy(block, bytes, op.source) } else { block });
            live.push(script.push_copy(block, bytes, op.source));
        }
    }
    if let Some(last) = recording.script.ops.last() {
        free_all(&mut live, *last, &mut script);
    }
    let change = (ProgramChange::OptimizerForeach, Sureness::Should);
    Some(recording.changed(change, "use foreach=False in the optimizer", |block| is_temporary[block as usize], script))
}

/// Bytes of the largest gradient. A step that failed may not have come to it.
fn largest_parameter(recording: &RecordedProgram<'_, '_>) -> u64 {
    let blocks = recording.script.blocks.iter().zip(recording.categories());
    blocks.filter(|(_, category)| **category == Category::Gradients).map(|(block, _)| block.bytes).max().unwrap_or(0)
}

/// Frees all `blocks` after operation `op`.
fn free_all(blocks: &mut Vec<u32>, op: ScriptOp, script: &mut Script) {
    script.ops.extend(blocks.drain(..).map(|block| ScriptOp::moved_free(op.source, block)));
}
