//! Activation checkpointing of a module: blocks that its forward pass keeps for the backward pass are freed when the
//! forward pass ends, and recomputed before the module's backward pass begins.
//!
//! As in `torch.utils.checkpoint` with `use_reentrant=False`: the output of a call is kept as the input of the next
//! one, and recomputation stops as soon as the last kept block is recomputed.

use std::cmp::Reverse;

use rustc_hash::FxHashSet;

use super::change::{ChangeCertainty, ChangedProgram, ProgramChange};
use super::checkpoint_plan::CheckpointPlan;
use super::modules::{ModuleCall, RepeatedModule, find_repeated};
use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use crate::base::units::{counted, size};
use crate::stacks::frames::LineId;

/// How many modules to try: those that hold most at the peak.
const MAX_MODULES: usize = 3;

/// Checkpoints each of the repeated modules that hold most at the peak, largest first.
pub(super) fn checkpoint_modules(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    checkpoint_largest(recording, MAX_MODULES)
}

/// Checkpoints the repeated module that holds most at the peak.
pub(in crate::whatif) fn checkpoint_largest_module(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    checkpoint_largest(recording, 1)
}

fn checkpoint_largest(recording: &RecordedProgram<'_, '_>, most: usize) -> Vec<ChangedProgram> {
    let passes = find_passes(recording);
    // If no backward pass is recorded, blocks may outlive a call for another reason, unless the program failed before
    // it.
    if passes.iter().all(|pass| pass.is_truncated) && !recording.device.ends_with_failure() {
        return Vec::new();
    }
    let peak_blocks: FxHashSet<u32> = recording.peak.blocks.iter().copied().collect();
    let bytes_at_peak = |module: &RepeatedModule| {
        let calls = module.passes.iter().flat_map(|(_, calls)| calls);
        let blocks = calls.flat_map(|call| &call.blocks).filter(|block| peak_blocks.contains(block));
        blocks.fold(0u64, |sum, block| sum.saturating_add(recording.rounded_bytes(*block)))
    };
    let modules = find_repeated(recording, &passes).into_iter().map(|module| (bytes_at_peak(&module), module));
    let mut modules: Vec<(u64, RepeatedModule)> = modules.filter(|(bytes, _)| *bytes > 0).collect();
    // The sort is stable, so of modules that hold the same the outermost comes first.
    modules.sort_by_key(|(bytes, _)| Reverse(*bytes));
    modules.truncate(most);
    let rows = modules.into_iter().map(|(_, module)| checkpoint_module(recording, &passes, &module));
    let mut rows: Vec<ChangedProgram> = rows.filter(|row| row.bytes_at_peak > 0).collect();
    // A helper that calls every module, such as `run(module, x)`, is one line.
    let labels: Vec<_> = rows.iter().map(|row| (row.description.clone(), row.line)).collect();
    for (row, label) in rows.iter_mut().zip(&labels) {
        if labels.iter().filter(|other| *other == label).count() > 1 {
            row.description = format!("{} that keep {}", row.description, size(row.bytes_at_peak));
        }
    }
    rows
}

fn checkpoint_module(recording: &RecordedProgram<'_, '_>, passes: &[Pass], module: &RepeatedModule) -> ChangedProgram {
    let mut plan = CheckpointPlan::new(&recording.script, passes, recording.saved_at_end());
    for (pass, calls) in &module.passes {
        let pass = &passes[*pass];
        for (index, call) in calls.iter().enumerate() {
            let previous = index.checked_sub(1).and_then(|at| calls.get(at));
            let next = calls.get(index + 1);
            if pass.backward.is_empty() {
                plan.add_call_without_backward(call);
            } else {
                plan.add_call(pass, previous, call, next.map(|next: &ModuleCall| next.blocks.as_slice()));
            }
        }
    }
    let calls = module.passes.iter().map(|(_, calls)| calls.len()).fold(0, usize::max);
    ChangedProgram {
        change: ProgramChange::Checkpoint,
        certainty: if plan.is_guess() { ChangeCertainty::Guess } else { ChangeCertainty::About },
        description: match &module.items {
            Some(items) => {
                format!("activation checkpointing of `{}`: {}", items.name, counted(calls as u64, "call"))
            }
            None => format!("activation checkpointing of each of {}", counted(calls as u64, "call")),
        },
        line: module.line.map(|line| LineId { frame: Some(line), has_stack: true, ..LineId::default() }),
        bytes_at_peak: recording.bytes_at_peak(|block| plan.freed_early.contains(&block)),
        script: plan.into_script(),
    }
}
