//! Gradients that are still there in the next forward pass, gone before it.
//!
//! Where they are never dropped, a backward pass makes each anew and adds it to the old one; without the old one it is
//! kept. Which is which follows from their order among those of their size.

use rustc_hash::{FxHashMap, FxHashSet};

use super::change::{ChangedProgram, ProgramChange, ChangeCertainty};
use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
use crate::replay::ops::{ScriptOp, ScriptOpKind};
use crate::study::attribution::Category;

/// Gradients gone before the forward pass that they live into.
pub(super) fn drop_gradients(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    changed(recording).into_iter().collect()
}

fn changed(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let passes = find_passes(recording);
    let (purposes, by_size) = (recording.categories(), BackwardRequests::new(recording, &passes));
    let blocks = &recording.script.blocks;
    // The forward pass of each later step that begins it.
    let first_of_step = |at: usize| {
        let step = |pass: &Pass| recording.step_at(pass.forward.start);
        let (own, before) = (step(passes.get(at)?), step(passes.get(at.checked_sub(1)?)?));
        (own.is_some() && own != before).then_some(at)
    };
    let mut before: FxHashMap<u32, Vec<ScriptOp>> = FxHashMap::default();
    let mut dropped: FxHashSet<u32> = FxHashSet::default();
    let mut moved = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        let Some(asked) = block.allocated_at else { continue };
        if purposes[number] != Category::Gradients || block.is_failed {
            continue;
        }
        let until = block.freed_at.unwrap_or(u32::MAX);
        let after = passes.partition_point(|pass| pass.forward.start <= asked);
        let Some(made_in) = after.checked_sub(1) else { continue };
        let mut now = to_u32(number);
        for at in (made_in + 1..passes.len()).filter_map(first_of_step) {
            let pass = &passes[at];
            if pass.forward.start >= until {
                break;
            }
            before.entry(pass.forward.start).or_default().push(free_before(pass, now));
            moved.push(to_u32(number));
            dropped.insert(now);
            if until <= pass.backward.start {
                break;
            }
            now = by_size.counterpart(block.bytes, (made_in, at), to_u32(number))?;
            dropped.insert(now);
        }
    }
    if moved.is_empty() {
        return None;
    }
    let mut script = recording.script.clone();
    script.ops.clear();
    for act in &recording.script.ops {
        script.ops.extend(before.remove(&act.source).into_iter().flatten());
        match act.kind {
            ScriptOpKind::Free { block, .. } if dropped.contains(&block) => {}
            _ => script.ops.push(*act),
        }
    }
    moved.sort_unstable();
    moved.dedup();
    Some(ChangedProgram {
        change: ProgramChange::GradientsGone,
        certainty: ChangeCertainty::About,
        description: "zero_grad(set_to_none=True) right after each step".to_owned(),
        line: recording.largest_line(moved.iter().copied()),
        bytes_at_peak: recording.bytes_at_peak(|block| moved.binary_search(&block).is_ok()),
        script,
    })
}

fn free_before(pass: &Pass, block: u32) -> ScriptOp {
    let like = pass.forward.start.saturating_sub(1);
    ScriptOp { source: like, kind: ScriptOpKind::Free { block, is_moved: true } }
}

/// What each backward pass asks for, by bytes, in order.
struct BackwardRequests {
    passes: Vec<SeededMap<u64, Vec<u32>>>,
    /// Of each block, its place among those of its size in its pass.
    places: FxHashMap<u32, usize>,
}

impl BackwardRequests {
    fn new(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Self {
        let mut places = FxHashMap::default();
        let mut of_pass = |pass: &Pass| {
            let range = pass.backward.start as usize..pass.backward.end as usize;
            let mut by_size: SeededMap<u64, Vec<u32>> = SeededMap::default();
            for act in recording.script.ops.get(range).unwrap_or_default() {
                let ScriptOpKind::Alloc(block) = act.kind else { continue };
                let bytes = recording.script.blocks[block as usize].bytes;
                let same = by_size.entry(bytes).or_default();
                places.insert(block, same.len());
                same.push(block);
            }
            by_size
        };
        let passes = passes.iter().map(&mut of_pass).collect();
        Self { passes, places }
    }

    /// What pass `later` makes in the place of a `gradient` of so many `bytes`, which pass `first` made; `None` where
    /// they do not make as many of its size.
    fn counterpart(&self, bytes: u64, (first, later): (usize, usize), gradient: u32) -> Option<u32> {
        let (first, later) = (self.passes[first].get(&bytes)?, self.passes[later].get(&bytes)?);
        let place = *self.places.get(&gradient)?;
        if first.len() == later.len() { later.get(place).copied() } else { None }
    }
}
