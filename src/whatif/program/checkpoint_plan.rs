//! When each block of a checkpointed module is freed and recomputed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::modules::ModuleCall;
use super::passes::Pass;
use crate::base::ids::StackId;
use crate::replay::ops::{Script, ScriptOp, ScriptOpKind};

/// Without a recorded backward pass: a call that keeps fewer blocks probably keeps a cache.
const MIN_KEPT_BLOCKS: usize = 4;
/// The output of a module has at least 1/16 of the size of the largest block that it keeps.
const RETURNED_MIN_PARTS: u64 = 16;

/// Operations to insert before or after a recorded one.
type InsertedOps = FxHashMap<u32, Vec<ScriptOp>>;

/// The changes that checkpointing a module makes to a script.
pub(super) struct CheckpointPlan<'p> {
    base: &'p Script,
    /// Has the recomputed blocks as well.
    script: Script,
    before: InsertedOps,
    after: InsertedOps,
    /// Blocks that are now freed when their call ends.
    pub(super) freed_early: FxHashSet<u32>,
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
    pub(super) fn new(base: &'p Script, passes: &[Pass], saved: Option<FxHashSet<u32>>) -> Self {
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
    pub(super) fn is_guess(&self) -> bool {
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
    pub(super) fn into_script(mut self) -> Script {
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
    pub(super) fn add_call(
        &mut self,
        pass: &Pass,
        previous: Option<&ModuleCall>,
        call: &ModuleCall,
        next: Option<&ModuleCall>,
    ) {
        let base = self.base;
        let (allocated_at, freed_at) = lifetime_in(base);
        // In a truncated pass, blocks count as kept if earlier calls kept theirs in the same position.
        let kept_by_others: FxHashSet<u32> =
            if pass.is_truncated { self.kept_for_backward(call).collect() } else { FxHashSet::default() };
        if pass.is_truncated && !call.iter().any(|b| pass.backward.contains(&freed_at(*b))) {
            return self.add_call_without_backward(call);
        }
        let is_kept = |b: u32| pass.backward.contains(&freed_at(b)) || kept_by_others.contains(&b);
        let Some(last) = call.last().map(|block| allocated_at(*block)) else { return }; // no blocks to free
        let mut free_ops: Vec<u32> = call.iter().copied().filter(|block| is_kept(*block)).map(freed_at).collect();
        free_ops.sort_unstable();
        let Some(median_free) = free_ops.get(free_ops.len() / 2) else { return }; // the call keeps nothing
        // Recomputation starts when the backward pass reaches this call: after the last free of a block that belongs to
        // later calls. Frees after the median free of this call carry no information, because the program itself may
        // free such blocks after the whole backward pass.
        let is_before_own_backward = |block: &u32| is_kept(*block) && freed_at(*block) < *median_free;
        let recompute_at = match next {
            Some(blocks) => blocks.iter().copied().filter(is_before_own_backward).map(freed_at).max(),
            None => self.allocated_after(last, pass).filter(is_before_own_backward).map(freed_at).max(),
        };
        let mut recompute_at = last_adjacent_free(base, recompute_at.unwrap_or(pass.backward.start));
        // The output of the call is used by later operations, so it is freed before `recompute_at` or still in the
        // forward pass. Without such a block, recomputation starts after the first free of the call's own blocks.
        let end = last_adjacent_free(base, last) + 1;
        let is_returned = |block: &u32| {
            is_kept(*block) && freed_at(*block) <= recompute_at
                || (end + 1..pass.backward.start).contains(&freed_at(*block))
        };
        if !call.iter().any(is_returned) {
            recompute_at = last_adjacent_free(base, free_ops[0]);
        }
        let to_recompute: Vec<u32> =
            call.iter().copied().filter(|b| is_kept(*b) && freed_at(*b) > recompute_at).collect();
        let Some(last_recomputed) = to_recompute.last().map(|block| allocated_at(*block)) else {
            return; // all that the call keeps is freed before it would be recomputed
        };
        // Later calls keep the output as their input, up to where the backward pass reaches this call.
        let output = output_of(base, call, end).filter(|block| to_recompute.contains(block) && next.is_some());
        let not_output = to_recompute.iter().filter(|block| Some(**block) != output);
        self.before.entry(end).or_default().extend(not_output.map(|block| ScriptOp::moved_free(last, *block)));
        let kept: FxHashSet<u32> = to_recompute.iter().copied().collect();
        let positions = stack_positions(base, call).filter(|(block, _)| kept.contains(block));
        self.kept_positions.extend(positions.map(|(_, position)| position));
        self.freed_early.extend(kept);
        self.after
            .entry(recompute_at)
            .or_default()
            .extend(output.map(|block| ScriptOp::moved_free(recompute_at, block)));
        let is_recomputed = |block: u32| is_kept(block) && freed_at(block) > recompute_at;
        self.recompute(call, recompute_at, last_recomputed, is_recomputed);
        let last_free = to_recompute.iter().map(|block| freed_at(*block)).max().unwrap_or(recompute_at);
        self.keep_inputs(pass, previous, call, end, last_free);
    }

    /// Repeats the forward pass of `call` at operation `at`, up to operation `last`. Blocks that are not kept for the
    /// backward pass are freed as before.
    fn recompute(&mut self, call: &ModuleCall, at: u32, last: u32, is_kept: impl Fn(u32) -> bool) {
        let base = self.base;
        let (allocated_at, freed_at) = lifetime_in(base);
        let ops = self.after.entry(at).or_default();
        let mut temporaries: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        for block in call.iter().copied().filter(|block| allocated_at(*block) <= last) {
            let source = allocated_at(block);
            while let Some(Reverse((_, block))) = temporaries.peek().copied().filter(|Reverse((end, _))| *end < source)
            {
                temporaries.pop();
                ops.push(ScriptOp::moved_free(at, block));
            }
            let copy = self.script.duplicate_block(block);
            ops.push(ScriptOp { source, kind: ScriptOpKind::Alloc(copy) });
            if is_kept(block) {
                self.recomputed.insert(block, copy);
            } else {
                temporaries.push(Reverse((freed_at(block), copy)));
            }
        }
        let temporaries = temporaries.into_sorted_vec().into_iter().rev();
        ops.extend(temporaries.map(|Reverse((_, block))| ScriptOp::moved_free(at, block)));
    }

    /// Keeps the inputs of `call`, which ends at operation `end`, up to `last_free`, when the last block that is recomputed
    /// from them is freed.
    fn keep_inputs(&mut self, pass: &Pass, previous: Option<&ModuleCall>, call: &ModuleCall, end: u32, last_free: u32) {
        let base = self.base;
        let (allocated_at, freed_at) = lifetime_in(base);
        let start = call.first().map(|block| allocated_at(*block)).unwrap_or_default();
        let of_previous = previous.into_iter().flat_map(|call| call.iter().copied());
        let of_previous = of_previous.filter(|block| (start..pass.backward.start).contains(&freed_at(*block)));
        // Other inputs are freed while the module runs, or when it returns.
        let others =
            base.ops[start as usize..(end as usize).min(base.ops.len())].iter().filter_map(|op| match op.kind {
                ScriptOpKind::Free { block, .. } => Some(block),
                _ => None,
            });
        let others = others.filter(|block| (pass.forward.start..start).contains(&allocated_at(*block)));
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

    /// The blocks of `call` that are never freed and that it keeps for the backward pass, as far as other calls show.
    fn kept_for_backward<'c>(&'c self, call: &'c ModuleCall) -> impl Iterator<Item = u32> + 'c {
        stack_positions(self.base, call).filter_map(|(block, position)| {
            let script_block = &self.base.blocks[block as usize];
            let never_freed = script_block.freed_at.is_none() && !script_block.is_failed;
            (never_freed && self.is_for_backward(block, position)).then_some(block)
        })
    }

    /// Checkpoints `call`, whose backward pass is not recorded: blocks that it would keep are freed when it ends.
    pub(super) fn add_call_without_backward(&mut self, call: &ModuleCall) {
        let base = self.base;
        let block_at = |block: u32| &base.blocks[block as usize];
        let Some(last) = call.last().and_then(|block| block_at(*block).allocated_at) else {
            return; // no blocks to free
        };
        let end = last_adjacent_free(base, last) + 1;
        let mut kept: Vec<u32> = Vec::new();
        for (block, position) in stack_positions(base, call) {
            let outlives = block_at(block).freed_at.is_none_or(|freed_at| freed_at > end);
            if outlives && self.is_for_backward(block, position) && !block_at(block).is_failed {
                kept.push(block);
            }
        }
        if self.is_before_backward {
            // The last block that is not a small statistic of others, such as a norm's, is the output.
            let largest = kept.iter().map(|block| block_at(*block).bytes).max().unwrap_or(0);
            if let Some(at) = kept.iter().rposition(|block| block_at(*block).bytes >= largest / RETURNED_MIN_PARTS) {
                kept.remove(at);
            }
            if self.is_guess() && kept.len() < MIN_KEPT_BLOCKS {
                return;
            }
        }
        self.before.entry(end).or_default().extend(kept.iter().map(|b| ScriptOp::moved_free(last, *b)));
        self.freed_early.extend(kept);
    }
}

/// The block that `call` returns, which ends at operation `end`: the last one that outlives it and is not a small
/// statistic of others, such as a norm's.
fn output_of(base: &Script, call: &ModuleCall, end: u32) -> Option<u32> {
    let outlives = |block: &u32| base.blocks[*block as usize].freed_at.is_none_or(|freed_at| freed_at > end);
    let bytes = |block: &u32| base.blocks[*block as usize].bytes;
    let mut blocks = call.iter().copied().filter(outlives);
    let largest = blocks.clone().map(|block| bytes(&block)).max().unwrap_or(0);
    blocks.rfind(|block| bytes(block) >= largest / RETURNED_MIN_PARTS)
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

/// The operations of `base` that allocate and free a block: the first and one after the last if they are not recorded.
fn lifetime_in(base: &Script) -> (impl Fn(u32) -> u32 + Copy + '_, impl Fn(u32) -> u32 + Copy + '_) {
    let block = move |block: u32| &base.blocks[block as usize];
    (move |at| block(at).allocated_at.unwrap_or(0), move |at| block(at).freed_at.unwrap_or(u32::MAX))
}

/// The last of the frees that directly follow `op`; `op` if there are none.
fn last_adjacent_free(base: &Script, mut op: u32) -> u32 {
    let is_free = |op: &ScriptOp| matches!(op.kind, ScriptOpKind::Free { .. });
    while base.ops.get(op as usize + 1).is_some_and(is_free) {
        op += 1;
    }
    op
}
