//! Modules that are called several times in a forward pass, such as the layers of a network.
//!
//! The frames outside a `forward` identify its call site. Requests of one call site belong to the next call when their
//! stacks start over.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::passes::{Pass, forward_pass_of};
use super::recorded_program::RecordedProgram;
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::replay::ops::ScriptOpKind;
use crate::stacks::frames::Origin;

/// A module that one call site calls several times in a forward pass.
#[derive(Debug, Clone)]
pub(super) struct RepeatedModule {
    /// The innermost frame outside PyTorch that encloses the call.
    pub(super) line: Option<FrameId>,
    /// The calls in each pass that has more than one, in order.
    pub(super) passes: Vec<(usize, Vec<ModuleCall>)>,
}

/// One call of a module.
#[derive(Debug, Clone, Default)]
pub(super) struct ModuleCall {
    /// The blocks that it requests, in order.
    pub(super) blocks: Vec<u32>,
}

/// A call of a `forward` function from certain outer frames, a node of [`CallSites::node_ids`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CallSite {
    outer_frames: u32,
    function: (SymbolId, SymbolId),
}

/// The frames of stacks as a tree, outermost first, and the call sites in it.
#[derive(Default)]
struct CallSites {
    node_ids: FxHashMap<(u32, FrameId), u32>,
    site_ids: FxHashMap<CallSite, u32>,
    lines: Vec<Option<FrameId>>,
    /// The call sites of each stack that was read, outermost first.
    by_stack: FxHashMap<StackId, Vec<u32>>,
}

impl CallSites {
    fn sites_of(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> &[u32] {
        if !self.by_stack.contains_key(&stack) {
            let sites = self.find_sites(recording, stack);
            self.by_stack.insert(stack, sites);
        }
        &self.by_stack[&stack]
    }

    fn find_sites(&mut self, recording: &RecordedProgram<'_, '_>, stack: StackId) -> Vec<u32> {
        let (snapshot, reader) = (recording.device.snapshot(), recording.device.stacks());
        let (mut outside, mut line, mut found) = (0, None, Vec::new());
        for id in snapshot.stacks.frames(stack).iter().rev() {
            let origin = reader.origin(id);
            if origin == Origin::Native {
                continue;
            }
            let frame = snapshot.stacks.frame(id);
            if snapshot.text(frame.name) == "forward" {
                let site = CallSite { outer_frames: outside, function: (frame.file, frame.name) };
                let next = crate::base::ids::to_u32(self.lines.len());
                let number = *self.site_ids.entry(site).or_insert(next);
                if number == next {
                    self.lines.push(line);
                }
                found.push(number);
            }
            if matches!(origin, Origin::User | Origin::Package) {
                line = Some(id);
            }
            let next = crate::base::ids::to_u32(self.node_ids.len()) + 1;
            outside = *self.node_ids.entry((outside, id)).or_insert(next);
        }
        found
    }
}

/// The modules that are called several times in one of the `passes`.
pub(super) fn find_repeated(recording: &RecordedProgram<'_, '_>, passes: &[Pass]) -> Vec<RepeatedModule> {
    let mut sites = CallSites::default();
    // The blocks requested by each call site in each pass.
    let mut blocks_by_site: FxHashMap<(u32, usize), Vec<u32>> = FxHashMap::default();
    for op in &recording.script.ops {
        let ScriptOpKind::Alloc(block) = op.kind else { continue }; // not a request
        let Some(pass) = forward_pass_of(passes, op.source) else { continue }; // outside of every forward pass
        // A block that outlives the pass is a workspace or a cache, not an activation of the module.
        let Pass { backward, is_truncated, .. } = &passes[pass];
        let script_block = &recording.script.blocks[block as usize];
        if !is_truncated && script_block.freed_at.is_none_or(|freed| freed >= backward.end) {
            continue;
        }
        for site in sites.sites_of(recording, script_block.stack) {
            blocks_by_site.entry((*site, pass)).or_default().push(block);
        }
    }
    let mut blocks_by_site: Vec<((u32, usize), Vec<u32>)> = blocks_by_site.into_iter().collect();
    blocks_by_site.sort_unstable_by_key(|(index, _)| *index);
    let mut modules: Vec<(u32, RepeatedModule)> = Vec::new();
    for ((site, pass), blocks) in blocks_by_site {
        let stack_of = |block: &u32| recording.script.blocks[*block as usize].stack;
        let stacks: Vec<StackId> = blocks.iter().map(stack_of).collect();
        let calls = split_into_calls(&stacks);
        if calls.len() < 2 {
            continue;
        }
        if modules.last().is_none_or(|(last, _)| *last != site) {
            let line = sites.lines[site as usize];
            modules.push((site, RepeatedModule { line, passes: Vec::new() }));
        }
        if let Some((_, module)) = modules.last_mut() {
            let calls = calls.into_iter().map(|rows| ModuleCall { blocks: blocks[rows].to_vec() });
            module.passes.push((pass, calls.collect()));
        }
    }
    modules.into_iter().map(|(_, module)| module).collect()
}

/// Splits the requests of one call site into calls by their `stacks`: a call starts where the first stack comes again.
/// If the parts between repeat with a longer period, a whole period is one call.
fn split_into_calls(stacks: &[StackId]) -> Vec<Range<usize>> {
    let Some(first) = stacks.first() else { return Vec::new() }; // no requests, no calls
    let starts_call = |index: &usize| stacks[*index] == *first && (*index == 0 || stacks[*index - 1] != *first);
    let mut starts: Vec<usize> = (0..stacks.len()).filter(starts_call).collect();
    let part_count = starts.len();
    starts.push(stacks.len());
    let part = |index: usize| &stacks[starts[index]..starts[index + 1]];
    let is_period = |period: usize| (period..part_count).all(|index| part(index) == part(index - period));
    // Without a longer period each part is a call.
    let period = (1..=part_count / 2).find(|index| part_count.is_multiple_of(*index) && is_period(*index)).unwrap_or(1);
    let call_ends = starts.iter().copied().step_by(period).skip(1);
    starts.iter().copied().step_by(period).zip(call_ends).map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(stacks: &[u32]) -> Vec<Range<usize>> {
        split_into_calls(&stacks.iter().map(|stack| StackId(*stack)).collect::<Vec<_>>())
    }

    #[test]
    fn a_call_starts_where_stacks_repeat() {
        assert_eq!(ranges(&[1, 2, 3, 1, 2, 3, 1, 2, 3]), [0..3, 3..6, 6..9]);
        assert_eq!(ranges(&[1, 1, 2, 1, 1, 2]), [0..3, 3..6], "twice from one line");
        assert_eq!(ranges(&[1, 2, 1, 3, 1, 2, 1, 3]), [0..4, 4..8], "the same line again");
        assert_eq!(ranges(&[1, 2, 3]).len(), 1);
        assert_eq!(ranges(&[1, 2, 1, 2, 4]), [0..2, 2..5], "one does more");
        assert!(ranges(&[]).is_empty());
    }
}
