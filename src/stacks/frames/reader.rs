//! Reads stacks of one snapshot.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::frame::{FrameList, FrameReport};
use super::line::{CodeLocation, LineId, Seen, UNKNOWN, node, two_lines};
use super::origin::{Origin, slashed};
use super::stripped::without_directories;
use crate::base::ids::{FrameId, StackId};
use crate::base::units::plain_name;
use crate::snapshot::{Maker, Snapshot, Stacks};

/// The operator that a C++ frame runs: `aten::bmm` of `at::_ops::bmm::call(...)`, `BmmBackward0` of
/// `torch::autograd::generated::BmmBackward0::apply(...)`.
fn operator(name: &str) -> Option<String> {
    [("at::_ops::", "aten::"), ("torch::autograd::generated::", "")].iter().find_map(
        |(prefix, shown)| {
            let (op, _) = name.strip_prefix(prefix)?.split_once("::")?;
            Some(plain_name(&format!("{shown}{op}")))
        },
    )
}

/// Reads stacks of one snapshot, each frame judged once.
#[derive(Debug)]
pub struct StackReader<'a> {
    snapshot: &'a Snapshot,
    origins: Vec<Origin>,
    /// Of each frame that names a node of autograd, the first that names the same.
    nodes: Vec<Option<FrameId>>,
    /// Of each stack, once it was asked for.
    whole: Vec<OnceLock<FrameList>>,
    /// Files are told without their directories.
    strips_paths: bool,
}

impl<'a> StackReader<'a> {
    /// Judges every frame of `snapshot`.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let origin = |id: usize| {
            let frame = snapshot.stacks.frame(FrameId::from_index(id));
            Origin::of(snapshot.text(frame.file), frame.line, snapshot.text(frame.name))
        };
        let origins = (0..snapshot.stacks.frame_count()).map(origin).collect();
        let mut known = FxHashMap::default();
        let mut first = |id: usize| {
            let id = FrameId::from_index(id);
            let name = node(snapshot.text(snapshot.stacks.frame(id).name))?;
            Some(*known.entry(name).or_insert(id))
        };
        let nodes = (0..snapshot.stacks.frame_count()).map(&mut first).collect();
        let whole = vec![OnceLock::new(); snapshot.stacks.len()];
        Self { snapshot, origins, nodes, whole, strips_paths: false }
    }

    /// The same, for people who are not to know the directories of the machine.
    #[must_use]
    pub fn stripping_paths(self, strips_paths: bool) -> Self {
        Self { strips_paths, ..self }
    }

    /// Whose code frame `id` is.
    pub(crate) fn origin(&self, id: FrameId) -> Origin {
        self.origins[id.index()]
    }

    /// The stack that was recorded where `stack` is more than that.
    pub(crate) fn recorded(&self, stack: StackId) -> StackId {
        self.snapshot.stacks.recorded(stack)
    }

    /// Frame `id` for people and JSON.
    pub(crate) fn report(&self, id: FrameId) -> FrameReport {
        let frame = self.snapshot.stacks.frame(id);
        let file = self.snapshot.text(frame.file);
        let file = if self.strips_paths {
            plain_name(&without_directories(file, self.origin(id)))
        } else {
            plain_name(file)
        };
        FrameReport { file, line: frame.line, name: plain_name(self.snapshot.text(frame.name)) }
    }

    /// The whole stack, innermost first.
    pub fn whole(&self, stack: StackId) -> FrameList {
        let read = || -> FrameList {
            let ids = self.snapshot.stacks.frames(stack).iter();
            ids.map(|id| self.report(*id)).collect()
        };
        Arc::clone(self.whole[stack.index()].get_or_init(read))
    }

    /// What was being done: the operators that C++ frames name, outermost first (`BmmBackward0 >
    /// aten::bmm`), else the innermost frame of PyTorch's Python code.
    pub fn operation(&self, stack: StackId) -> Option<String> {
        let mut operators: Vec<String> = Vec::new();
        for id in self.snapshot.stacks.frames(stack) {
            let frame = self.snapshot.stacks.frame(*id);
            match self.origin(*id) {
                Origin::Native => {
                    if let Some(op) = operator(self.snapshot.text(frame.name))
                        && operators.last() != Some(&op)
                    {
                        operators.push(op);
                    }
                }
                Origin::Torch if operators.is_empty() => {
                    let file = slashed(self.snapshot.text(frame.file));
                    let short = file.rsplit_once("/torch/").map_or(&*file, |(_, inside)| inside);
                    let name = self.snapshot.text(frame.name);
                    return Some(plain_name(&format!("torch/{short}:{} {name}", frame.line)));
                }
                Origin::Plumbing => {}
                _ => break,
            }
        }
        // Redispatch repeats operators; the innermost and the outermost tell.
        match operators.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            [inner, .., outer] => Some(format!("{outer} > {inner}")),
        }
    }

    /// What `stack` is named by.
    pub(crate) fn line(&self, stack: StackId) -> LineId {
        let maker = self.snapshot.stacks.maker(stack);
        let (own, ids) = self.all_frames(maker);
        let (code, caller) = self.two_lines(&ids);
        let inside = ids.get(..code.unwrap_or(own).min(own)).unwrap_or_default();
        let at = |index: Option<usize>| index.and_then(|index| ids.get(index)).copied();
        let node = inside.iter().find_map(|id| self.nodes[id.index()]);
        let has_own_code = code.is_some_and(|code| code < own);
        LineId {
            code: at(code),
            caller: at(caller),
            node,
            is_backward: node.is_some() || (maker.caller != Stacks::EMPTY && !has_own_code),
            forward: self.innermost(maker.forward),
            compiled: maker.compile_context,
            has_stack: maker.stack != Stacks::EMPTY,
        }
    }

    /// The frames of a stack and those of the call that its thread serves, innermost first, and how many of
    /// them are its own. Before a frame of code that a program wrote comes its source.
    fn all_frames(&self, maker: Maker) -> (usize, Vec<FrameId>) {
        let stacks = &self.snapshot.stacks;
        let mut ids = Vec::new();
        for id in stacks.frames(maker.stack) {
            ids.extend(stacks.original(*id));
            ids.push(*id);
        }
        let own = ids.len();
        ids.extend(stacks.frames(maker.caller));
        (own, ids)
    }

    /// Every frame behind `stack`, innermost first: its own, and those of the call that its thread serves.
    pub(crate) fn frames_behind(&self, stack: StackId) -> Vec<FrameId> {
        self.all_frames(self.snapshot.stacks.maker(stack)).1
    }

    fn two_lines(&self, ids: &[FrameId]) -> (Option<usize>, Option<usize>) {
        two_lines(ids.iter().map(|id| {
            let frame = self.snapshot.stacks.frame(*id);
            let name = self.snapshot.text(frame.name);
            Seen { origin: self.origin(*id), file: frame.file, line: frame.line, name }
        }))
    }

    /// The innermost frame of `stack` that is not PyTorch's.
    fn innermost(&self, stack: StackId) -> Option<FrameId> {
        let ids = self.snapshot.stacks.frames(stack);
        self.two_lines(ids).0.and_then(|index| ids.get(index)).copied()
    }

    /// Frame, caller and autograd node of `line`, for output.
    pub(crate) fn code_location(&self, line: LineId) -> CodeLocation {
        let node_of = |id| node(self.snapshot.text(self.snapshot.stacks.frame(id).name));
        let node = line.node.and_then(node_of).map(plain_name);
        CodeLocation {
            frame: line.code.map(|id| self.report(id)),
            moved_from: None,
            called_from: line.caller.map(|id| self.report(id)),
            backward: node.or_else(|| line.is_backward.then(|| UNKNOWN.to_owned())),
            forward: line.forward.map(|id| self.report(id)),
            compile_context: line.compiled.map(|id| plain_name(self.snapshot.text(id))),
            has_stack: line.has_stack,
        }
    }

    /// The innermost frame of the user's own code; failing that, of an installed package other than
    /// PyTorch (a training program may be one).
    pub(crate) fn own_line(&self, stack: StackId) -> Option<FrameId> {
        let (_, ids) = self.all_frames(self.snapshot.stacks.maker(stack));
        [Origin::User, Origin::Package]
            .iter()
            .find_map(|wanted| ids.iter().copied().find(|id| self.origin(*id) == *wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_named_shortly() {
        assert_eq!(
            operator("at::_ops::bmm::redispatch(c10::DispatchKeySet)").unwrap(),
            "aten::bmm"
        );
        assert_eq!(
            operator("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)")
                .unwrap(),
            "BmmBackward0"
        );
        assert_eq!(operator("c10::Dispatcher::call"), None);
    }
}
