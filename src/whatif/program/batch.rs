//! Half the batch, in two passes: each forward and backward pass runs twice with half the memory, and the second run
//! adds its gradients to those of the first.

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::recorded_program::{Pass, RecordedProgram, find_passes};
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededSet;
use crate::replay::ops::{Script, ScriptOp, ScriptOpKind};
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;
use crate::whatif::Sureness;

/// Splits each forward and backward pass in two halves.
pub(super) fn halve_batch(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let passes = find_passes(recording);
    let categories = recording.categories();
    let is_halved = grows_with_batch(recording, &passes);
    if passes.is_empty() || !is_halved.contains(&true) || is_failure_fixed(recording, &passes, &is_halved) {
        return None;
    }
    let kept = find_kept(recording);
    let mut script = recording.script.clone();
    for (block, is_halved) in script.blocks.iter_mut().zip(&is_halved) {
        if *is_halved {
            block.bytes = block.bytes.div_ceil(2);
        }
    }
    let mut ops = Vec::with_capacity(script.ops.len() * 2);
    let mut end_of_last = 0;
    for pass in passes.iter().filter(|pass| !pass.backward.is_empty()) {
        let (start, end) = (pass.forward.start as usize, pass.backward.end as usize);
        ops.extend_from_slice(&recording.script.ops[end_of_last..start]);
        run_twice(&recording.script.ops[start..end], categories, &kept, &mut script, &mut ops);
        end_of_last = end;
    }
    ops.extend_from_slice(&recording.script.ops[end_of_last..]);
    script.ops = ops;
    let inputs =
        (0..to_u32(recording.script.blocks.len())).filter(|block| categories[*block as usize] == Category::Inputs);
    let change = (ProgramChange::HalfBatch, Sureness::Estimate);
    let changed =
        recording.changed(change, "run half the batch, twice a step", |block| is_halved[block as usize], script);
    Some(ChangedProgram { line: recording.largest_line(inputs), ..changed })
}

/// Whether the recording ends with a failed request that half the batch makes unchanged: outside the passes, or in a
/// forward pass by a stack whose other requests do not depend on the batch.
fn is_failure_fixed(recording: &RecordedProgram<'_, '_>, passes: &[Pass], is_halved: &[bool]) -> bool {
    let Some(own) = recording.script.blocks.iter().rfind(|block| block.is_failed) else { return false };
    let Some(allocated_at) = own.allocated_at else { return false };
    if !passes.iter().any(|pass| (pass.forward.start..pass.backward.end.max(pass.forward.end)).contains(&allocated_at))
    {
        return true;
    }
    let others = recording.script.blocks.iter().zip(is_halved);
    let mut others = others.filter(|(block, _)| block.stack == own.stack && !block.is_failed).peekable();
    let is_in_module = recording.device.phases().stack_traits(own.stack).has_forward_frame;
    let is_known = others.peek().is_some();
    let depends = others.any(|(_, is_halved)| *is_halved) || !is_known && is_in_module;
    recording.phase_at(allocated_at) != Phase::Backward && !depends
}

/// For each block, whether it grows with the batch: allocations of the passes, except gradients, temporaries of a
/// backward pass with the size of a parameter or gradient, and cuBLASLt workspaces.
fn grows_with_batch(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Vec<bool> {
    let categories = recording.categories();
    let blocks = &recording.script.blocks;
    let model_blocks = blocks.iter().zip(categories);
    let model_blocks =
        model_blocks.filter(|(_, category)| matches!(category, Category::Parameters | Category::Gradients));
    let model_sizes: SeededSet<u64> = model_blocks.map(|(block, _)| block.bytes).collect();
    let halved = categories.iter().enumerate().map(|(index, category)| {
        let block = &blocks[index];
        let Some(allocated_at) = block.allocated_at else { return false }; // older than every pass
        let after = passes.partition_point(|pass| pass.forward.start <= allocated_at);
        let pass = after.checked_sub(1).map(|index| &passes[index]);
        let is_in_pass = pass.is_some_and(|pass| allocated_at < pass.backward.end);
        let grows = match category {
            Category::Activations | Category::Inputs => true,
            Category::Temporaries => {
                recording.phase_at(allocated_at) != Phase::Backward || !model_sizes.contains(&block.bytes)
            }
            Category::Parameters
            | Category::Gradients
            | Category::OptimizerState
            | Category::KvCache
            | Category::Communication
            | Category::Other => false,
        };
        is_in_pass && grows && !recording.is_cublas_workspace(to_u32(index))
    });
    halved.collect()
}

/// For each block, whether a step keeps it beyond the next one, as in a list of outputs: both runs keep theirs. The last
/// steps do not show that, but earlier ones whose blocks the same stack allocated. A single step may make a buffer.
fn find_kept(recording: &RecordedProgram<'_, '_>) -> Vec<bool> {
    let blocks = &recording.script.blocks;
    let last_step = recording.script.ops.last().and_then(|op| recording.step_at(op.source)).unwrap_or(0);
    // The stack and the step of each block that outlives the step after its own.
    let outliving = blocks.iter().map(|block| {
        let step = block.allocated_at.and_then(|op| recording.step_at(op))?;
        recording.outlives_step(block, step + 1).then_some((block.stack, step))
    });
    let outliving: Vec<Option<(StackId, u32)>> = outliving.collect();
    let shown = outliving.iter().flatten().filter(|(_, step)| step + 1 < last_step).unique();
    let steps = shown.map(|(stack, _)| stack).counts();
    outliving.iter().map(|kept| kept.is_some_and(|(stack, _)| steps.get(&stack) > Some(&1))).collect()
}

/// Appends `pass` to `ops` twice. The first run has copies of all blocks except the gradients, to which the second run
/// adds its own.
fn run_twice(pass: &[ScriptOp], categories: &[Category], kept: &[bool], script: &mut Script, ops: &mut Vec<ScriptOp>) {
    let mut first_pass: FxHashMap<u32, u32> = FxHashMap::default();
    let mut second_gradients: FxHashMap<u32, u32> = FxHashMap::default();
    for op in pass {
        let kind = match op.kind {
            ScriptOpKind::Alloc(block) if categories[block as usize] == Category::Gradients => {
                second_gradients.insert(block, script.duplicate_block(block));
                op.kind
            }
            ScriptOpKind::Alloc(block) => {
                let copy = script.duplicate_block(block);
                first_pass.insert(block, copy);
                ScriptOpKind::Alloc(copy)
            }
            // Gradients stay for the second run.
            ScriptOpKind::Free { block, .. } if second_gradients.contains_key(&block) => continue,
            ScriptOpKind::Free { block, is_moved } => {
                let copy = first_pass.remove(&block).unwrap_or(block);
                ScriptOpKind::Free { block: copy, is_moved }
            }
            ScriptOpKind::Other => continue,
        };
        ops.push(ScriptOp { kind, ..*op });
    }
    let mut pending_free: Option<ScriptOp> = None;
    for op in pass {
        // The second run's gradient is freed once it was added to the first, so before the next request.
        if matches!(op.kind, ScriptOpKind::Alloc(_)) {
            ops.extend(pending_free.take());
        }
        match op.kind {
            ScriptOpKind::Alloc(block) => {
                let gradient = second_gradients.get(&block).copied();
                ops.push(ScriptOp { kind: ScriptOpKind::Alloc(gradient.unwrap_or(block)), ..*op });
                let freed = gradient.or_else(|| first_pass.remove(&block).filter(|_| !kept[block as usize]));
                let free = freed.map(|block| ScriptOp::moved_free(op.source, block));
                if gradient.is_some() {
                    pending_free = free;
                } else {
                    // A block that outlives the first run is freed when the second run assigns the same variable.
                    ops.extend(free);
                }
            }
            ScriptOpKind::Free { .. } | ScriptOpKind::Other => ops.push(*op),
        }
    }
    ops.extend(pending_free);
}
