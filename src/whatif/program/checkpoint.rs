//! Activation checkpointing of a module: blocks that its forward pass keeps for the backward pass are freed when the
//! forward pass ends, and recomputed before the module's backward pass begins.
//!
//! As in `torch.utils.checkpoint` with `use_reentrant=False`: the output of a call is kept as the input of the next
//! one, and recomputation stops as soon as the last kept block is recomputed. A [`CheckpointPlan`] has when each block is
//! freed and recomputed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use itertools::Itertools as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::modules::{ModuleCall, RepeatedModule, find_repeated};
use super::recorded_program::{Pass, RecordedProgram, find_passes};
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::StackId;
use crate::base::units::{counted, size};
use crate::replay::ops::{Script, ScriptOp, ScriptOpKind};
use crate::stacks::frames::LineId;
use crate::whatif::Sureness;

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

/// Whether a loop without a backward pass frees more of what outlives the next call of `module` than it leaves: then no
/// graph keeps it, as in generation, where each step replaces a cache.
fn is_freed_in_loop(recording: &RecordedProgram<'_, '_>, passes: &[Pass], module: &RepeatedModule) -> bool {
    if recording.device.growth().is_none() {
        return false; // it may be the first forward pass, before a backward pass
    }
    let blocks = &recording.script.blocks;
    let (mut freed, mut left) = (0u64, 0u64);
    for (_, calls) in module.passes.iter().filter(|(pass, _)| passes[*pass].backward.is_empty()) {
        for (call, next) in calls.iter().tuple_windows() {
            let end = next.last().and_then(|last| blocks[*last as usize].allocated_at);
            let of_call = call.iter().map(|block| &blocks[*block as usize]);
            for block in of_call.filter(|block| block.freed_at.is_none() || block.freed_at > end) {
                let sum = if block.freed_at.is_none() { &mut left } else { &mut freed };
                *sum = sum.saturating_add(block.bytes);
            }
        }
    }
    freed > left
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
        let modules = find_repeated(recording, &passes).into_iter().map(|module| {
            let at_peak = module.blocks().filter(|block| peak_blocks.contains(block));
            (at_peak.fold(0u64, |sum, block| sum.saturating_add(recording.rounded_bytes(block))), module)
        });
        let modules = modules.filter(|(bytes, module)| *bytes > 0 && !is_freed_in_loop(recording, &passes, module));
        // The sort is stable, so of modules that hold the same the outermost comes first.
        let modules = modules.sorted_by_key(|(bytes, _)| Reverse(*bytes)).collect();
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
            calls.sort_by_key(|call| recording.script.blocks[*call.first()? as usize].allocated_at);
            let pass = &self.passes[*pass];
            for (index, call) in calls.iter().enumerate() {
                let previous = index.checked_sub(1).and_then(|at| calls.get(at)).copied();
                let next = calls.get(index + 1).copied();
                plan.add_call(pass, previous, call, next);
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

/// Without a recorded backward pass: a call that keeps fewer blocks probably keeps a cache.
const MIN_KEPT_BLOCKS: usize = 4;
/// The output of a module has at least 1/16 of the size of the largest block that it keeps.
const RETURNED_MIN_PARTS: u64 = 16;

/// Operations to insert before or after a recorded one.
type InsertedOps = FxHashMap<u32, Vec<ScriptOp>>;

/// The changes that checkpointing a module makes to a script.
struct CheckpointPlan<'p> {
    base: &'p Script,
    /// Has the recomputed blocks as well.
    script: Script,
    before: InsertedOps,
    after: InsertedOps,
    /// Blocks that are now freed when their call ends.
    freed_early: FxHashSet<u32>,
    /// The recomputed copy of each of them.
    recomputed: FxHashMap<u32, u32>,
    /// Blocks that are freed later than recorded.
    freed_late: FxHashSet<u32>,
    /// Blocks that calls are known to keep for the backward pass, as a stack and the occurrence of that stack in a
    /// call.
    kept_positions: FxHashSet<(StackId, u32)>,
    /// No backward pass is recorded.
    is_before_backward: bool,
    /// The blocks that the recorder saw in an autograd graph at the end. If it did not look and no backward pass is
    /// recorded, every block that outlives its call counts as kept for it.
    saved: Option<FxHashSet<u32>>,
}

impl<'p> CheckpointPlan<'p> {
    fn new(base: &'p Script, passes: &[Pass], saved: Option<FxHashSet<u32>>) -> Self {
        Self {
            base,
            script: base.clone(),
            before: InsertedOps::default(),
            after: InsertedOps::default(),
            freed_early: FxHashSet::default(),
            recomputed: FxHashMap::default(),
            freed_late: FxHashSet::default(),
            kept_positions: FxHashSet::default(),
            is_before_backward: passes.iter().all(|pass| pass.is_truncated),
            saved,
        }
    }

    /// Whether the blocks that calls keep for the backward pass are unknown.
    fn is_guess(&self) -> bool {
        self.is_before_backward && self.saved.is_none()
    }

    /// Whether a block of a call without a backward pass is kept for it.
    fn is_for_backward(&self, block: u32, position: (StackId, u32)) -> bool {
        match &self.saved {
            Some(saved) if self.is_before_backward => saved.contains(&block),
            _ => self.is_before_backward || self.kept_positions.contains(&position),
        }
    }

    /// The script with all changes.
    fn into_script(mut self) -> Script {
        let mut ops = Vec::with_capacity(self.base.ops.len());
        for op in &self.base.ops {
            ops.extend(self.before.remove(&op.source).into_iter().flatten());
            match op.kind {
                ScriptOpKind::Free { block, .. } if self.freed_late.contains(&block) => {}
                ScriptOpKind::Free { block, is_moved } => {
                    let block = self.recomputed.get(&block).copied().unwrap_or(block);
                    ops.push(ScriptOp { kind: ScriptOpKind::Free { block, is_moved }, ..*op });
                }
                _ => ops.push(*op),
            }
            ops.extend(self.after.remove(&op.source).into_iter().flatten());
        }
        Script { ops, ..self.script }
    }

    /// Checkpoints `call`, one call of the module in `pass`. `next` has the blocks of the call after it.
    fn add_call(&mut self, pass: &Pass, previous: Option<&ModuleCall>, call: &ModuleCall, next: Option<&ModuleCall>) {
        let base = self.base;
        if pass.is_truncated && !call.iter().any(|block| pass.backward.contains(&freed_at(base, *block))) {
            return self.add_call_without_backward(call);
        }
        let never_freed = if pass.is_truncated { self.kept_for_backward(call, u32::MAX) } else { Vec::new() };
        let kept = KeptBlocks { base, backward: &pass.backward, never_freed: never_freed.into_iter().collect() };
        let Some(last) = call.last().map(|block| allocated_at(base, *block)) else { return }; // no blocks to free
        let free_ops: Vec<u32> = kept.free_ops(call.iter().copied()).sorted_unstable().collect();
        let Some(median_free) = free_ops.get(free_ops.len() / 2) else { return }; // the call keeps nothing
        // Recomputation starts when the backward pass reaches this call: after the last free of a block that belongs to
        // later calls. Frees after the median free of this call carry no information, because the program itself may
        // free such blocks after the whole backward pass.
        let later = next.map_or_else(|| self.allocated_after(last, pass).collect(), <[u32]>::to_vec);
        let recompute_at = kept.free_ops(later.into_iter()).filter(|free| free < median_free).max();
        let mut recompute_at = last_adjacent_free(base, recompute_at.unwrap_or(pass.backward.start));
        // The output of the call is used by later operations, so it is freed before `recompute_at` or still in the
        // forward pass. Without such a block, recomputation starts after the first free of the call's own blocks.
        let end = last_adjacent_free(base, last) + 1;
        let is_returned = call.iter().any(|block| {
            let freed_at = freed_at(base, *block);
            kept.contains(*block) && freed_at <= recompute_at || (end + 1..pass.backward.start).contains(&freed_at)
        });
        if !is_returned {
            recompute_at = last_adjacent_free(base, free_ops[0]);
        }
        let to_recompute = call.iter().copied().filter(|block| kept.contains(*block));
        let to_recompute: Vec<u32> = to_recompute.filter(|block| freed_at(base, *block) > recompute_at).collect();
        let Some(last_recomputed) = to_recompute.last().map(|block| allocated_at(base, *block)) else {
            return; // all that the call keeps is freed before it would be recomputed
        };
        // Later calls keep the output as their input, up to where the backward pass reaches this call.
        let output = output_of(base, call, end).filter(|block| to_recompute.contains(block) && next.is_some());
        let not_output = to_recompute.iter().filter(|block| Some(**block) != output);
        self.before.entry(end).or_default().extend(not_output.map(|block| ScriptOp::moved_free(last, *block)));
        let kept: FxHashSet<u32> = to_recompute.iter().copied().collect();
        let positions = stack_positions(base, call).filter(|(block, _)| kept.contains(block));
        self.kept_positions.extend(positions.map(|(_, position)| position));
        let after = self.after.entry(recompute_at).or_default();
        after.extend(output.map(|block| ScriptOp::moved_free(recompute_at, block)));
        self.recompute(call, recompute_at, last_recomputed, &kept);
        self.freed_early.extend(kept);
        let last_free = to_recompute.iter().map(|block| freed_at(base, *block)).max().unwrap_or(recompute_at);
        self.keep_inputs(pass, previous, call, end, last_free);
    }

    /// Repeats the forward pass of `call` at operation `at`, up to operation `last`. Blocks that are not `kept` for the
    /// backward pass are freed as before.
    fn recompute(&mut self, call: &ModuleCall, at: u32, last: u32, kept: &FxHashSet<u32>) {
        let base = self.base;
        let ops = self.after.entry(at).or_default();
        let mut temporaries: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        for block in call.iter().copied().filter(|block| allocated_at(base, *block) <= last) {
            let source = allocated_at(base, block);
            while let Some(Reverse((_, block))) = temporaries.peek().copied().filter(|Reverse((end, _))| *end < source)
            {
                temporaries.pop();
                ops.push(ScriptOp::moved_free(at, block));
            }
            let copy = self.script.duplicate_block(block);
            ops.push(ScriptOp { source, kind: ScriptOpKind::Alloc(copy) });
            if kept.contains(&block) {
                self.recomputed.insert(block, copy);
            } else {
                temporaries.push(Reverse((freed_at(base, block), copy)));
            }
        }
        let temporaries = temporaries.into_sorted_vec().into_iter().rev();
        ops.extend(temporaries.map(|Reverse((_, block))| ScriptOp::moved_free(at, block)));
    }

    /// Keeps the inputs of `call`, which ends at operation `end`, up to `last_free`, when the last block that is recomputed
    /// from them is freed.
    fn keep_inputs(&mut self, pass: &Pass, previous: Option<&ModuleCall>, call: &ModuleCall, end: u32, last_free: u32) {
        let base = self.base;
        let start = call.first().map(|block| allocated_at(base, *block)).unwrap_or_default();
        let of_previous = previous.into_iter().flat_map(|call| call.iter().copied());
        let of_previous = of_previous.filter(|block| (start..pass.backward.start).contains(&freed_at(base, *block)));
        // Other inputs are freed while the module runs, or when it returns.
        let others =
            base.ops[start as usize..(end as usize).min(base.ops.len())].iter().filter_map(|op| match op.kind {
                ScriptOpKind::Free { block, .. } => Some(block),
                _ => None,
            });
        let others = others.filter(|block| (pass.forward.start..start).contains(&allocated_at(base, *block)));
        for input in of_previous.chain(others) {
            if self.freed_late.insert(input) {
                self.after.entry(last_free).or_default().push(ScriptOp::moved_free(last_free, input));
            }
        }
    }

    /// The blocks requested after operation `last` in the forward pass of `pass`.
    fn allocated_after(&self, last: u32, pass: &Pass) -> impl Iterator<Item = u32> + '_ {
        self.base.ops[last as usize + 1..pass.forward.end as usize].iter().filter_map(|op| match op.kind {
            ScriptOpKind::Alloc(block) => Some(block),
            _ => None,
        })
    }

    /// The blocks of `call` that are not freed up to operation `end`, and that it keeps for the backward pass, as far as
    /// other calls show.
    fn kept_for_backward(&self, call: &ModuleCall, end: u32) -> Vec<u32> {
        let kept = stack_positions(self.base, call).filter(|(block, position)| {
            let script_block = &self.base.blocks[*block as usize];
            let outlives = script_block.freed_at.is_none_or(|freed_at| freed_at > end) && !script_block.is_failed;
            outlives && self.is_for_backward(*block, *position)
        });
        kept.map(|(block, _)| block).collect()
    }

    /// Checkpoints `call`, whose backward pass is not recorded: blocks that it would keep are freed when it ends.
    fn add_call_without_backward(&mut self, call: &ModuleCall) {
        let base = self.base;
        let Some(last) = call.last().and_then(|block| base.blocks[*block as usize].allocated_at) else {
            return; // no blocks to free
        };
        let end = last_adjacent_free(base, last) + 1;
        let mut kept = self.kept_for_backward(call, end);
        if self.is_before_backward {
            if let Some(index) = output_index(base, &kept) {
                kept.remove(index);
            }
            if self.is_guess() && kept.len() < MIN_KEPT_BLOCKS {
                return;
            }
        }
        self.before.entry(end).or_default().extend(kept.iter().map(|b| ScriptOp::moved_free(last, *b)));
        self.freed_early.extend(kept);
    }
}

/// The blocks that a call keeps for its backward pass.
struct KeptBlocks<'p> {
    base: &'p Script,
    backward: &'p Range<u32>,
    /// In a truncated pass, blocks count as kept if earlier calls kept theirs in the same position.
    never_freed: FxHashSet<u32>,
}

impl KeptBlocks<'_> {
    fn contains(&self, block: u32) -> bool {
        self.backward.contains(&freed_at(self.base, block)) || self.never_freed.contains(&block)
    }

    /// The operations that free those of `blocks` that are kept.
    fn free_ops(&self, blocks: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
        blocks.filter(|block| self.contains(*block)).map(|block| freed_at(self.base, block))
    }
}

/// The block that `call` returns, which ends at operation `end`.
fn output_of(base: &Script, call: &ModuleCall, end: u32) -> Option<u32> {
    let blocks = call.iter().copied().filter(|block| freed_at(base, *block) > end);
    let blocks: Vec<u32> = blocks.collect();
    output_index(base, &blocks).map(|index| blocks[index])
}

/// The index of the last of `blocks` that is not a small statistic of others, such as a norm's.
fn output_index(base: &Script, blocks: &[u32]) -> Option<usize> {
    let mut bytes = blocks.iter().map(|block| base.blocks[*block as usize].bytes);
    let largest = bytes.clone().max().unwrap_or(0);
    bytes.rposition(|bytes| bytes >= largest / RETURNED_MIN_PARTS)
}

/// The blocks of `call`, each with its stack and the occurrence of that stack in the call, counted from 1.
fn stack_positions<'c>(base: &'c Script, call: &'c ModuleCall) -> impl Iterator<Item = (u32, (StackId, u32))> + 'c {
    let mut occurrences: FxHashMap<StackId, u32> = FxHashMap::default();
    call.iter().map(move |block| {
        let stack = base.blocks[*block as usize].stack;
        let occurrence = occurrences.entry(stack).or_default();
        *occurrence += 1;
        (*block, (stack, *occurrence))
    })
}

/// The operation that allocates `block`; the first if it is not recorded.
fn allocated_at(base: &Script, block: u32) -> u32 {
    base.blocks[block as usize].allocated_at.unwrap_or(0)
}

/// The operation that frees `block`; one after the last if it is not recorded.
fn freed_at(base: &Script, block: u32) -> u32 {
    base.blocks[block as usize].freed_at.unwrap_or(u32::MAX)
}

/// The last of the frees that directly follow `op`; `op` if there are none.
fn last_adjacent_free(base: &Script, mut op: u32) -> u32 {
    while base.ops.get(op as usize + 1).is_some_and(|op| matches!(op.kind, ScriptOpKind::Free { .. })) {
        op += 1;
    }
    op
}
