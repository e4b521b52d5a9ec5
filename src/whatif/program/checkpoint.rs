//! Activation checkpointing of a module: what its forward pass keeps for the backward pass is freed when it ends, and
//! made again before its own backward pass begins.
//!
//! As `torch.utils.checkpoint` does it with `use_reentrant=False`: what a call makes and the next call begins with is
//! kept, as that call's input; the forward pass that is made again stops as soon as the last of what is kept has been
//! made.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::change::{ChangedProgram, ProgramChange, ChangeCertainty};
use super::modules::{RepeatedModule, ModuleCall, find_repeated};
use super::passes::{Pass, find_passes};
use super::checkpoint_plan::CheckpointPlan;
use super::recorded_program::RecordedProgram;
use crate::base::units::counted;
use crate::stacks::frames::LineId;

/// Modules that are tried: those that hold most at the peak.
const MAX_MODULES: usize = 3;

/// Each repeated module checkpointed, those that hold most at the peak first.
pub(super) fn checkpoint_modules(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    checkpoint_largest(recording, MAX_MODULES)
}

/// The repeated module that holds most at the peak checkpointed.
pub(super) fn checkpoint_largest_module(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    checkpoint_largest(recording, 1)
}

fn checkpoint_largest(recording: &RecordedProgram<'_, '_>, most: usize) -> Vec<ChangedProgram> {
    let passes = find_passes(recording);
    // Without a backward pass nothing says that what outlives a call waits for one, but a failure before it.
    if passes.iter().all(|pass| pass.is_cut) && !recording.device.ends_with_failure() {
        return Vec::new();
    }
    let is_at_peak: FxHashSet<u32> = recording.peak.blocks.iter().copied().collect();
    let at_peak = |module: &RepeatedModule| {
        let calls = module.passes.iter().flat_map(|(_, calls)| calls);
        let blocks = calls.flat_map(|call| &call.blocks).filter(|block| is_at_peak.contains(block));
        blocks.fold(0u64, |sum, block| sum.saturating_add(recording.rounded_bytes(*block)))
    };
    let modules = find_repeated(recording, &passes).into_iter().map(|module| (at_peak(&module), module));
    let mut modules: Vec<(u64, RepeatedModule)> = modules.filter(|(bytes, _)| *bytes > 0).collect();
    // Of those that hold the same, the outermost.
    modules.sort_by_key(|(bytes, _)| Reverse(*bytes));
    modules.truncate(most);
    let rows = modules.into_iter().map(|(_, module)| checkpoint_module(recording, &passes, &module));
    rows.filter(|row| row.bytes_at_peak > 0).collect()
}

fn checkpoint_module(recording: &RecordedProgram<'_, '_>, passes: &[Pass], module: &RepeatedModule) -> ChangedProgram {
    let mut plan = CheckpointPlan::new(&recording.script, passes);
    for (pass, calls) in &module.passes {
        let pass = &passes[*pass];
        for (number, call) in calls.iter().enumerate() {
            let previous = number.checked_sub(1).and_then(|at| calls.get(at));
            let next = calls.get(number + 1);
            if pass.backward.is_empty() {
                plan.add_call_without_backward(call);
            } else {
                plan.add_call(
                    pass,
                    previous,
                    call,
                    next.map(|next: &ModuleCall| next.blocks.as_slice()),
                );
            }
        }
    }
    let calls = module.passes.iter().map(|(_, calls)| calls.len()).max().unwrap_or(0);
    ChangedProgram {
        change: ProgramChange::Checkpoint,
        certainty: if plan.is_guess { ChangeCertainty::Guess } else { ChangeCertainty::About },
        description: format!("activation checkpointing of each of {}", counted(calls as u64, "call")),
        line: module.line.map(|line| LineId {
            frame: Some(line),
            has_stack: true,
            ..LineId::default()
        }),
        bytes_at_peak: recording.bytes_at_peak(|block| plan.freed_early.contains(&block)),
        script: plan.into_script(),
    }
}
