//! Modules that are called several times in a forward pass, as the layers of a network are.
//!
//! A call is told by its stack: the frames outside a `forward` are those of the place that calls it. One call is told
//! from the next by the stacks of its requests, which begin anew.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::passes::{Pass, forward_pass_of};
use super::recorded_program::RecordedProgram;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::replay::ops::ScriptOpKind;
use crate::stacks::frames::Origin;

/// A module that is called from one place several times in a forward pass.
#[derive(Debug, Clone)]
pub(super) struct RepeatedModule {
    /// The innermost line of code around it that is not PyTorch's.
    pub(super) line: Option<FrameId>,
    /// Of each pass in which it is called more than once, the calls, in order.
    pub(super) passes: Vec<(usize, Vec<ModuleCall>)>,
}

/// One call of a module.
#[derive(Debug, Clone, Default)]
pub(super) struct ModuleCall {
    /// The blocks that it asks for, in order.
    pub(super) blocks: Vec<u32>,
}

/// A place that calls a `forward`: the frames outside it, and the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CallSite {
    outside: u32,
    function: (SymbolId, SymbolId),
}

/// The frames of stacks, from outside in, as a tree; and the places in it.
#[derive(Default)]
struct CallSites {
    nodes: FxHashMap<(u32, FrameId), u32>,
    numbers: FxHashMap<CallSite, u32>,
    lines: Vec<Option<FrameId>>,
    /// Of each stack that was read, the places around it.
    by_stack: FxHashMap<StackId, Vec<u32>>,
}

impl CallSites {
    fn sites_of(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> &[u32] {
        if !self.by_stack.contains_key(&stack) {
            let read = self.find_sites(recording, stack);
            self.by_stack.insert(stack, read);
        }
        &self.by_stack[&stack]
    }

    fn find_sites(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> Vec<u32> {
        let (snapshot, reader) = (recording.device.snapshot(), recording.device.stacks());
        let (mut outside, mut line, mut found) = (0, None, Vec::new());
        for id in snapshot.stacks.frames(stack).iter().rev() {
            let origin = reader.origin(*id);
            if origin == Origin::Native {
                continue;
            }
            let frame = snapshot.stacks.frame(*id);
            if snapshot.text(frame.name) == "forward" {
                let place = CallSite { outside, function: (frame.file, frame.name) };
                let next = crate::base::ids::to_u32(self.lines.len());
                let number = *self.numbers.entry(place).or_insert(next);
                if number == next {
                    self.lines.push(line);
                }
                found.push(number);
            }
            if matches!(origin, Origin::User | Origin::Package) {
                line = Some(*id);
            }
            let next = crate::base::ids::to_u32(self.nodes.len()) + 1;
            outside = *self.nodes.entry((outside, *id)).or_insert(next);
        }
        found
    }
}

/// The modules of `recording` that are called several times in one of its `passes`.
pub(super) fn find_repeated(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Vec<RepeatedModule> {
    let mut places = CallSites::default();
    // Of each place and pass, what is asked for.
    let mut asked: FxHashMap<(u32, usize), Vec<u32>> = FxHashMap::default();
    for act in &recording.script.ops {
        let ScriptOpKind::Alloc(block) = act.kind else { continue };
        let Some(pass) = forward_pass_of(passes, act.source) else { continue };
        // What stays for good is scratch memory, not the module's own.
        let Pass { backward, is_cut, .. } = &passes[pass];
        let one = &recording.script.blocks[block as usize];
        if !is_cut && one.freed_at.is_none_or(|freed| freed >= backward.end) {
            continue;
        }
        for place in places.sites_of(recording, one.stack) {
            asked.entry((*place, pass)).or_default().push(block);
        }
    }
    let mut asked: Vec<((u32, usize), Vec<u32>)> = asked.into_iter().collect();
    asked.sort_unstable_by_key(|(at, _)| *at);
    let mut modules: Vec<(u32, RepeatedModule)> = Vec::new();
    for ((place, pass), blocks) in asked {
        let stack_of = |block: &u32| recording.script.blocks[*block as usize].stack;
        let stacks: Vec<StackId> = blocks.iter().map(stack_of).collect();
        let calls = split_into_calls(&stacks);
        if calls.len() < 2 {
            continue;
        }
        if modules.last().is_none_or(|(last, _)| *last != place) {
            let line = places.lines[place as usize];
            modules.push((place, RepeatedModule { line, passes: Vec::new() }));
        }
        if let Some((_, module)) = modules.last_mut() {
            let calls = calls.into_iter().map(|rows| ModuleCall { blocks: blocks[rows].to_vec() });
            module.passes.push((pass, calls.collect()));
        }
    }
    modules.into_iter().map(|(_, module)| module).collect()
}

/// Where calls begin and end in the requests of one place, by their `stacks`: where the first stack comes again. What
/// comes in turns is one call.
fn split_into_calls(stacks: &[StackId]) -> Vec<Range<usize>> {
    let Some(first) = stacks.first() else { return Vec::new() };
    let begins = |at: &usize| stacks[*at] == *first && (*at == 0 || stacks[*at - 1] != *first);
    let mut starts: Vec<usize> = (0..stacks.len()).filter(begins).collect();
    let parts = starts.len();
    starts.push(stacks.len());
    let part = |n: usize| &stacks[starts[n]..starts[n + 1]];
    let is_period = |period: usize| (period..parts).all(|n| part(n) == part(n - period));
    // Parts that never come again are taken as they are.
    let period = (1..=parts / 2).find(|n| parts.is_multiple_of(*n) && is_period(*n)).unwrap_or(1);
    let ends = starts.iter().copied().step_by(period).skip(1);
    starts.iter().copied().step_by(period).zip(ends).map(|(from, to)| from..to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(stacks: &[u32]) -> Vec<Range<usize>> {
        split_into_calls(&stacks.iter().map(|stack| StackId(*stack)).collect::<Vec<_>>())
    }

    #[test]
    fn calls_are_told_apart_by_what_comes_again() {
        assert_eq!(ranges(&[1, 2, 3, 1, 2, 3, 1, 2, 3]), [0..3, 3..6, 6..9]);
        assert_eq!(ranges(&[1, 1, 2, 1, 1, 2]), [0..3, 3..6], "twice from one line");
        assert_eq!(ranges(&[1, 2, 1, 3, 1, 2, 1, 3]), [0..4, 4..8], "the same line again");
        assert_eq!(ranges(&[1, 2, 3]).len(), 1);
        assert_eq!(ranges(&[1, 2, 1, 2, 4]), [0..2, 2..5], "one does more");
        assert_eq!(ranges(&[]), []);
    }
}
