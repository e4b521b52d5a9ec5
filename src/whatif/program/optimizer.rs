//! Changes to the optimizer: no temporaries, offloaded state.

use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::replay::ops::{ScriptBlock, ScriptOpKind};
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;
use crate::whatif::sureness::Sureness;

/// Removes the temporaries of the optimizer's step.
pub(super) fn fuse_optimizer(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let is_temporary = find_temporaries(recording);
    let change = (ProgramChange::OptimizerTemporaries, Sureness::Checked);
    let is_removed = |block: u32| is_temporary[block as usize];
    let fused = || recording.resized_by(change, "fuse the optimizer (fused=True)", is_removed, |_| 0);
    is_temporary.contains(&true).then(fused)
}

/// Keeps the optimizer's state on the host, where its step has its temporaries, too.
pub(super) fn offload_state(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let is_state = |category: &Category| *category == Category::OptimizerState;
    let categories = recording.categories();
    if !categories.iter().any(is_state) {
        return None;
    }
    let temporaries = find_temporaries(recording);
    let is_offloaded: Vec<bool> =
        categories.iter().zip(temporaries).map(|(category, is_temporary)| is_state(category) || is_temporary).collect();
    let change = (ProgramChange::StateOffloaded, Sureness::Estimate);
    let is_removed = |block: u32| is_offloaded[block as usize];
    Some(recording.resized_by(change, "offload optimizer state to the host", is_removed, |_| 0))
}

/// For each block, whether it lives only within a step of the optimizer.
pub(super) fn find_temporaries(recording: &RecordedProgram<'_, '_>) -> Vec<bool> {
    let last_request = recording.script.ops.iter().rposition(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let is_temporary = |(index, block): (usize, &ScriptBlock)| {
        let Some(allocated_at) = block.allocated_at else { return false }; // older than every recorded step
        // After the last request the program may have ended, which frees everything.
        let freed_at = block.freed_at.filter(|op| last_request.is_some_and(|last| (*op as usize) < last));
        let is_freed_in_step = match freed_at {
            // A request of another phase ends the step.
            Some(freed_at) => recording.is_same_phase_run(allocated_at, freed_at),
            None => recording.categories()[index] == Category::Temporaries,
        };
        is_freed_in_step
            && recording.phase_at(allocated_at) == Phase::Optimizer
            && recording.device.phases().stack_traits(block.stack).phase == Some(Phase::Optimizer)
    };
    recording.script.blocks.iter().enumerate().map(is_temporary).collect()
}
