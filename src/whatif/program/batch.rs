//! Half the batch, twice: each pass is made two times with half of what it makes, and the gradients of the second time
//! are added to those of the first.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::change::{Changed, ProgramChange, Sure};
use super::passes::{Pass, passes};
use super::recording::Recording;
use crate::base::ids::row;
use crate::base::intern::SeededSet;
use crate::replay::calls::{Op, Script, What};
use crate::stacks::phases::Phase;
use crate::study::held::Category;

/// Each forward and backward pass in two halves.
pub(super) fn halves(recording: &Recording<'_, '_>) -> Vec<Changed> {
    changed(recording).into_iter().collect()
}

fn changed(recording: &Recording<'_, '_>) -> Option<Changed> {
    let passes = passes(recording);
    let purposes = recording.purposes();
    let halved = halved(recording, &passes);
    if passes.is_empty() || !halved.contains(&true) {
        return None;
    }
    let mut script = recording.script.clone();
    for (block, is_one) in script.blocks.iter_mut().zip(&halved) {
        if *is_one {
            block.bytes = block.bytes.div_ceil(2);
        }
    }
    let mut acts = Vec::with_capacity(script.acts.len() * 2);
    let mut done = 0;
    for pass in passes.iter().filter(|pass| !pass.backward.is_empty()) {
        let (from, to) = (pass.forward.start as usize, pass.backward.end as usize);
        let part = |range: Range<usize>| recording.script.acts.get(range).unwrap_or_default();
        acts.extend_from_slice(part(done..from));
        twice(part(from..to), purposes, &mut script, &mut acts);
        done = to;
    }
    acts.extend_from_slice(&recording.script.acts[done..]);
    script.acts = acts;
    let inputs = (0..row(recording.script.blocks.len()))
        .filter(|block| purposes[*block as usize] == Category::Inputs);
    Some(Changed {
        change: ProgramChange::HalfBatch,
        sure: Sure::Guess,
        what: "half the batch, twice before each step".to_owned(),
        line: recording.main_line(inputs),
        bytes_at_peak: recording.bytes_at_peak(|block| halved[block as usize]),
        script,
    })
}

/// Of each block, whether it grows with the batch: what passes make, save gradients, what is of their sizes, and scratch
/// memory.
fn halved(recording: &Recording<'_, '_>, passes: &[Pass]) -> Vec<bool> {
    let purposes = recording.purposes();
    let blocks = &recording.script.blocks;
    let of_model = blocks
        .iter()
        .zip(purposes)
        .filter(|(_, purpose)| matches!(purpose, Category::Parameters | Category::Gradients));
    let sizes: SeededSet<u64> = of_model.map(|(block, _)| block.bytes).collect();
    let is_one = |(number, purpose): (usize, &Category)| {
        let block = &blocks[number];
        let Some(asked) = block.asked else { return false };
        let after = passes.partition_point(|pass| pass.forward.start <= asked);
        let pass = after.checked_sub(1).map(|at| &passes[at]);
        let is_in_pass = pass.is_some_and(|pass| asked < pass.backward.end);
        let grows = match purpose {
            Category::Activations | Category::Inputs => true,
            Category::Temporaries => {
                recording.phase_of(asked) != Phase::Backward || !sizes.contains(&block.bytes)
            }
            _ => false,
        };
        is_in_pass && grows && !recording.is_scratch(row(number))
    };
    purposes.iter().enumerate().map(is_one).collect()
}

/// `pass` made twice: the first time with blocks of its own, but for the gradients, which the second adds to.
fn twice(pass: &[Op], purposes: &[Category], script: &mut Script, acts: &mut Vec<Op>) {
    let mut first: FxHashMap<u32, u32> = FxHashMap::default();
    let mut second: FxHashMap<u32, u32> = FxHashMap::default();
    for act in pass {
        let what = match act.what {
            What::Ask(block) if purposes[block as usize] == Category::Gradients => {
                second.insert(block, script.add_like(block));
                act.what
            }
            What::Ask(block) => {
                let own = script.add_like(block);
                first.insert(block, own);
                What::Ask(own)
            }
            // Gradients stay for the second time.
            What::Free { block, .. } if second.contains_key(&block) => continue,
            What::Free { block, is_moved } => {
                let own = first.remove(&block).unwrap_or(block);
                What::Free { block: own, is_moved }
            }
            What::Other => continue,
        };
        acts.push(Op { what, ..*act });
    }
    let mut added: Option<Op> = None;
    for act in pass {
        // What was added to the gradient of the first time is gone when anything else is asked for.
        if matches!(act.what, What::Ask(_)) {
            acts.extend(added.take());
        }
        match act.what {
            What::Ask(block) => {
                let own = second.get(&block).copied();
                acts.push(Op { what: What::Ask(own.unwrap_or(block)), ..*act });
                let gone = own.or_else(|| first.remove(&block));
                let gone = gone.map(|block| What::Free { block, is_moved: true });
                let gone = gone.map(|what| Op { what, ..*act });
                if own.is_some() {
                    added = gone;
                } else {
                    // What the first time left is there until the second takes its name.
                    acts.extend(gone);
                }
            }
            What::Free { .. } | What::Other => acts.push(*act),
        }
    }
    acts.extend(added);
}
