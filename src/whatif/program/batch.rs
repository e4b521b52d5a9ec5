//! Half the batch, twice: each pass is made two times with half of what it makes, and the gradients of the second time
//! are added to those of the first.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::change::{ChangedProgram, ProgramChange, ChangeCertainty};
use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::base::intern::SeededSet;
use crate::replay::ops::{ScriptOp, Script, ScriptOpKind};
use crate::stacks::phases::Phase;
use crate::study::attribution::Category;

/// Each forward and backward pass in two halves.
pub(super) fn halve_batch(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    changed(recording).into_iter().collect()
}

fn changed(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let passes = find_passes(recording);
    let purposes = recording.categories();
    let halved = grows_with_batch(recording, &passes);
    if passes.is_empty() || !halved.contains(&true) {
        return None;
    }
    let mut script = recording.script.clone();
    for (block, is_one) in script.blocks.iter_mut().zip(&halved) {
        if *is_one {
            block.bytes = block.bytes.div_ceil(2);
        }
    }
    let mut acts = Vec::with_capacity(script.ops.len() * 2);
    let mut done = 0;
    for pass in passes.iter().filter(|pass| !pass.backward.is_empty()) {
        let (from, to) = (pass.forward.start as usize, pass.backward.end as usize);
        let part = |range: Range<usize>| recording.script.ops.get(range).unwrap_or_default();
        acts.extend_from_slice(part(done..from));
        run_twice(part(from..to), purposes, &mut script, &mut acts);
        done = to;
    }
    acts.extend_from_slice(&recording.script.ops[done..]);
    script.ops = acts;
    let inputs = (0..to_u32(recording.script.blocks.len()))
        .filter(|block| purposes[*block as usize] == Category::Inputs);
    Some(ChangedProgram {
        change: ProgramChange::HalfBatch,
        certainty: ChangeCertainty::Guess,
        description: "half the batch, twice before each step".to_owned(),
        line: recording.largest_line(inputs),
        bytes_at_peak: recording.bytes_at_peak(|block| halved[block as usize]),
        script,
    })
}

/// Of each block, whether it grows with the batch: what passes make, save gradients, what is of their sizes, and scratch
/// memory.
fn grows_with_batch(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Vec<bool> {
    let purposes = recording.categories();
    let blocks = &recording.script.blocks;
    let of_model = blocks
        .iter()
        .zip(purposes)
        .filter(|(_, purpose)| matches!(purpose, Category::Parameters | Category::Gradients));
    let sizes: SeededSet<u64> = of_model.map(|(block, _)| block.bytes).collect();
    let is_one = |(number, purpose): (usize, &Category)| {
        let block = &blocks[number];
        let Some(asked) = block.allocated_at else { return false };
        let after = passes.partition_point(|pass| pass.forward.start <= asked);
        let pass = after.checked_sub(1).map(|at| &passes[at]);
        let is_in_pass = pass.is_some_and(|pass| asked < pass.backward.end);
        let grows = match purpose {
            Category::Activations | Category::Inputs => true,
            Category::Temporaries => {
                recording.phase_at(asked) != Phase::Backward || !sizes.contains(&block.bytes)
            }
            _ => false,
        };
        is_in_pass && grows && !recording.is_cublas_workspace(to_u32(number))
    };
    purposes.iter().enumerate().map(is_one).collect()
}

/// `pass` made twice: the first time with blocks of its own, but for the gradients, which the second adds to.
fn run_twice(pass: &[ScriptOp], purposes: &[Category], script: &mut Script, acts: &mut Vec<ScriptOp>) {
    let mut first: FxHashMap<u32, u32> = FxHashMap::default();
    let mut second: FxHashMap<u32, u32> = FxHashMap::default();
    for act in pass {
        let what = match act.kind {
            ScriptOpKind::Alloc(block) if purposes[block as usize] == Category::Gradients => {
                second.insert(block, script.duplicate_block(block));
                act.kind
            }
            ScriptOpKind::Alloc(block) => {
                let own = script.duplicate_block(block);
                first.insert(block, own);
                ScriptOpKind::Alloc(own)
            }
            // Gradients stay for the second time.
            ScriptOpKind::Free { block, .. } if second.contains_key(&block) => continue,
            ScriptOpKind::Free { block, is_moved } => {
                let own = first.remove(&block).unwrap_or(block);
                ScriptOpKind::Free { block: own, is_moved }
            }
            ScriptOpKind::Other => continue,
        };
        acts.push(ScriptOp { kind: what, ..*act });
    }
    let mut added: Option<ScriptOp> = None;
    for act in pass {
        // What was added to the gradient of the first time is gone when anything else is asked for.
        if matches!(act.kind, ScriptOpKind::Alloc(_)) {
            acts.extend(added.take());
        }
        match act.kind {
            ScriptOpKind::Alloc(block) => {
                let own = second.get(&block).copied();
                acts.push(ScriptOp { kind: ScriptOpKind::Alloc(own.unwrap_or(block)), ..*act });
                let gone = own.or_else(|| first.remove(&block));
                let gone = gone.map(|block| ScriptOpKind::Free { block, is_moved: true });
                let gone = gone.map(|what| ScriptOp { kind: what, ..*act });
                if own.is_some() {
                    added = gone;
                } else {
                    // What the first time left is there until the second takes its name.
                    acts.extend(gone);
                }
            }
            ScriptOpKind::Free { .. } | ScriptOpKind::Other => acts.push(*act),
        }
    }
    acts.extend(added);
}
