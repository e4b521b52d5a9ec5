//! Freeing gradients before the forward pass after an optimizer's step, where `zero_grad(set_to_none=True)` belongs: some
//! programs call it after the forward pass.

use std::collections::BTreeSet;

use itertools::Itertools as _;

use super::recorded_program::{RecordedProgram, find_passes};
use super::report::{ChangedProgram, ProgramChange};
use crate::replay::ops::{Script, ScriptOp, ScriptOpKind};
use crate::stacks::phases::{KnownPurpose, Phase, StepMarker};
use crate::study::attribution::Category;
use crate::whatif::Sureness;

/// Frees the gradients that a forward pass does not need. `None` if a backward pass adds to them, as after
/// `zero_grad(set_to_none=False)`: which of its requests would then be gradients is not known.
pub(super) fn free_gradients(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let (blocks, ops) = (&recording.script.blocks, &recording.script.ops);
    let marker = recording.device.phases().steps.marker();
    let has_optimizer = matches!(marker, Some(StepMarker::OptimizerStep | StepMarker::OptimizerFrames));
    let mut script = Script { ops: Vec::new(), ..recording.script.clone() };
    let mut passes = find_passes(recording).into_iter().peekable();
    // Live gradients, freed ones, and those that the next backward pass makes anew.
    let (mut live, mut freed, mut awaited) = (BTreeSet::<u32>::new(), BTreeSet::<u32>::new(), Vec::<u32>::new());
    let (mut last_phase, mut trained_in, mut stepped_at) = (Phase::Other, None, None);
    for (index, op) in ops.iter().enumerate() {
        match op.kind {
            ScriptOpKind::Free { block, .. } if freed.contains(&block) => continue,
            ScriptOpKind::Free { block, .. } => _ = live.remove(&block),
            ScriptOpKind::Other => {}
            ScriptOpKind::Alloc(block) => {
                let phase = recording.phase_at(op.source);
                match phase {
                    Phase::Forward => {
                        if let Some(pass) = passes.next_if(|pass| pass.forward.contains(&op.source)) {
                            let has_stepped = has_optimizer && trained_in < recording.step_at(op.source);
                            let stale = live.iter().copied().filter(|gradient| {
                                let freed_at = blocks[*gradient as usize].freed_at;
                                has_stepped || freed_at.is_some_and(|at| pass.forward.contains(&at))
                            });
                            awaited = stale.collect();
                            script.ops.extend(awaited.iter().map(|block| ScriptOp::moved_free(op.source, *block)));
                            live.retain(|gradient| awaited.binary_search(gradient).is_err());
                            freed.extend(&awaited);
                        }
                    }
                    Phase::Backward => {
                        let is_start = last_phase != phase && recording.is_recorded(op.source);
                        if is_start && !remakes(recording, &ops[index..], &std::mem::take(&mut awaited)) {
                            return None;
                        }
                        trained_in = recording.step_at(op.source);
                        live.extend(is_gradient(recording, block).then_some(block));
                    }
                    Phase::Optimizer => stepped_at = Some(op.source),
                    _ => {}
                }
                last_phase = phase;
            }
        }
        script.ops.push(*op);
    }
    let change = (ProgramChange::GradientsFreed, Sureness::Should);
    let description = "call zero_grad(set_to_none=True) before the forward pass";
    let mut changed = recording.changed(change, description, |block| freed.contains(&block), script);
    changed.line = stepped_at.map(|op| recording.line_of(op)).or(changed.line);
    (!freed.is_empty()).then_some(changed)
}

/// Whether `block` of a backward pass is a gradient, other than a bucket of DDP, which stays.
fn is_gradient(recording: &RecordedProgram<'_, '_>, block: u32) -> bool {
    let one = &recording.script.blocks[block as usize];
    let purpose = recording.device.phases().stack_traits(one.stack).purpose;
    recording.categories()[block as usize] == Category::Gradients
        && !one.is_failed
        && purpose != Some(KnownPurpose::GradientBuckets)
}

/// Whether the backward pass at the start of `ops` makes the gradients anew that were `freed` and are not freed before it
/// in the recording.
fn remakes(recording: &RecordedProgram<'_, '_>, ops: &[ScriptOp], freed: &[u32]) -> bool {
    let blocks = &recording.script.blocks;
    let requests = ops.iter().filter(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let pass = requests.take_while(|op| recording.phase_at(op.source) == Phase::Backward);
    let made = pass.filter_map(|op| match op.kind {
        ScriptOpKind::Alloc(block) if is_gradient(recording, block) => Some(blocks[block as usize].bytes),
        _ => None,
    });
    let made = made.counts();
    let kept = freed.iter().map(|gradient| &blocks[*gradient as usize]);
    let kept = kept.filter(|block| block.freed_at.is_none_or(|at| at > ops[0].source));
    kept.map(|block| block.bytes).counts().iter().all(|(bytes, count)| made.get(bytes) >= Some(count))
}
