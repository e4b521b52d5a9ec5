//! Activation checkpointing of a module: blocks that its forward pass keeps for the backward pass are freed when the
//! forward pass ends, and recomputed before the module's backward pass begins.
//!
//! As in `torch.utils.checkpoint` with `use_reentrant=False`: the output of a call is kept as the input of the next
//! one, and recomputation stops as soon as the last kept block is recomputed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use itertools::Itertools as _;
use rustc_hash::FxHashSet;

use super::checkpoint_plan::CheckpointPlan;
use super::modules::{ModuleCall, RepeatedModule, find_repeated};
use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use super::report::{ChangedProgram, ProgramChange};
use crate::base::units::{counted, size};
use crate::stacks::frames::LineId;
use crate::whatif::sureness::Sureness;

/// How many modules to try: those that hold most at the peak.
const MAX_MODULES: usize = 3;
/// Modules that hold less than 1/50 of the largest one at the peak are not worth a change.
const MIN_MODULE_PARTS: u64 = 50;

/// Checkpoints all repeated modules, then each of those that hold most at the peak, largest first.
pub(super) fn checkpoint_modules(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let modules = RepeatedModules::new(recording);
    let rows = modules.all().into_iter().chain(modules.largest(MAX_MODULES));
    let mut rows: Vec<ChangedProgram> = rows.collect();
    // A helper that calls every module, such as `run(module, x)`, is one line.
    let labels: Vec<_> = rows.iter().map(|row| (row.description.clone(), row.line, row.other_lines.clone())).collect();
    for (row, label) in rows.iter_mut().zip(&labels) {
        if labels.iter().filter(|other| *other == label).count() > 1 {
            row.description = format!("{} that keep {}", row.description, size(row.bytes_at_peak));
        }
    }
    rows
}

/// Checkpoints all repeated modules, and the one that holds most at the peak.
pub(super) fn checkpoint_by_default(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    let modules = RepeatedModules::new(recording);
    modules.all().into_iter().chain(modules.largest(1)).collect()
}

/// Checkpoints the repeated module that holds most at the peak.
pub(in crate::whatif) fn checkpoint_largest(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    RepeatedModules::new(recording).largest(1).into_iter().next()
}

/// Checkpoints all repeated modules that no other one encloses, such as the blocks of each level of a U-Net.
pub(in crate::whatif) fn checkpoint_all(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    RepeatedModules::new(recording).all()
}

/// The repeated modules of a recording that hold memory at its peak.
struct RepeatedModules<'r, 's, 'a> {
    recording: &'r RecordedProgram<'s, 'a>,
    passes: Vec<Pass>,
    /// The modules that hold most come first, with their bytes at the peak.
    modules: Vec<(u64, RepeatedModule)>,
}

impl<'r, 's, 'a> RepeatedModules<'r, 's, 'a> {
    fn new(recording: &'r RecordedProgram<'s, 'a>) -> Self {
        let passes = find_passes(recording);
        // If no backward pass is recorded, blocks may outlive a call for another reason, unless the program failed
        // before it.
        if passes.iter().all(|pass| pass.is_truncated) && !recording.device.ends_with_failure() {
            return Self { recording, passes, modules: Vec::new() };
        }
        let peak_blocks: FxHashSet<u32> = recording.peak.blocks.iter().copied().collect();
        let bytes_at_peak = |module: &RepeatedModule| {
            let blocks = module.blocks().filter(|block| peak_blocks.contains(block));
            blocks.fold(0u64, |sum, block| sum.saturating_add(recording.rounded_bytes(block)))
        };
        let modules = find_repeated(recording, &passes).into_iter().map(|module| (bytes_at_peak(&module), module));
        let mut modules: Vec<(u64, RepeatedModule)> = modules.filter(|(bytes, _)| *bytes > 0).collect();
        // The sort is stable, so of modules that hold the same the outermost comes first.
        modules.sort_by_key(|(bytes, _)| Reverse(*bytes));
        Self { recording, passes, modules }
    }

    /// One row for each of the `most` modules that hold most.
    fn largest(&self, most: usize) -> Vec<ChangedProgram> {
        let rows = self.modules.iter().take(most).map(|(_, module)| self.checkpoint(&[module]));
        rows.filter(|row| row.bytes_at_peak > 0).collect()
    }

    /// All modules that no other one encloses; `None` if there is only one of them.
    fn all(&self) -> Option<ChangedProgram> {
        let (largest, _) = self.modules.first()?;
        let mut blocks: FxHashSet<u32> = FxHashSet::default();
        let mut outer: Vec<&RepeatedModule> = Vec::new();
        for (_, module) in self.modules.iter().take_while(|(bytes, _)| *bytes >= largest / MIN_MODULE_PARTS) {
            if module.blocks().all(|block| !blocks.contains(&block)) {
                blocks.extend(module.blocks());
                outer.push(module);
            }
        }
        (outer.len() > 1).then(|| self.checkpoint(&outer)).filter(|row| row.bytes_at_peak > 0)
    }

    fn checkpoint(&self, modules: &[&RepeatedModule]) -> ChangedProgram {
        let recording = self.recording;
        let mut calls_by_pass: BTreeMap<usize, Vec<&ModuleCall>> = BTreeMap::new();
        for (pass, calls) in modules.iter().flat_map(|module| &module.passes) {
            calls_by_pass.entry(*pass).or_default().extend(calls.iter().map(|call| &**call));
        }
        let mut plan = CheckpointPlan::new(&recording.script, &self.passes, recording.saved_at_end());
        for (pass, calls) in &mut calls_by_pass {
            let start = |call: &ModuleCall| recording.script.blocks[*call.first()? as usize].allocated_at;
            calls.sort_by_key(|call| start(call));
            let pass = &self.passes[*pass];
            for (index, call) in calls.iter().enumerate() {
                let previous = index.checked_sub(1).and_then(|at| calls.get(at)).copied();
                let next = calls.get(index + 1).copied();
                if pass.backward.is_empty() {
                    plan.add_call_without_backward(call);
                } else {
                    plan.add_call(pass, previous, call, next);
                }
            }
        }
        let calls = calls_by_pass.values().map(Vec::len).fold(0, usize::max);
        let calls = counted(calls as u64, "call");
        let names: Option<Vec<String>> =
            modules.iter().map(|module| module.items.as_ref().map(|items| format!("`{}`", items.name))).collect();
        let lines = modules.iter().filter_map(|module| module.line).unique();
        let mut lines = lines.map(|line| LineId { frame: Some(line), has_stack: true, ..LineId::default() });
        ChangedProgram {
            change: ProgramChange::Checkpoint,
            certainty: if plan.is_guess() { Sureness::Estimate } else { Sureness::Should },
            description: match names {
                Some(names) => format!("checkpoint {}: {calls}", names.join(", ")),
                None => format!("checkpoint each of {calls}"),
            },
            line: lines.next(),
            other_lines: lines.collect(),
            bytes_at_peak: recording.bytes_at_peak(|block| plan.freed_early.contains(&block)),
            script: plan.into_script(),
        }
    }
}
