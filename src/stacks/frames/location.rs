//! The source line that represents a stack: the innermost line outside PyTorch, its caller in the user's code, and for
//! a backward pass the autograd node.

use serde::Serialize;

use super::frame::FrameReport;
use super::origin::Origin;
use crate::base::ids::{FrameId, SymbolId};

/// Identifies the [`CodeLocation`] of a stack. Stacks with equal ids share a table row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LineId {
    /// The innermost frame outside PyTorch: the user's code, or an installed package.
    pub(crate) frame: Option<FrameId>,
    /// The innermost frame of user code that encloses `frame`.
    pub(crate) caller: Option<FrameId>,
    /// In a backward pass, the C++ frame that names the autograd node; the same frame for all stacks of a node.
    pub(crate) node: Option<FrameId>,
    /// The stack belongs to a backward pass: `frame` called `backward()`, or is called by the engine.
    pub(crate) is_backward: bool,
    /// In a backward pass, the forward line that created the node (anomaly mode).
    pub(crate) forward: Option<FrameId>,
    /// The `torch.compile` region.
    pub(crate) compile_context: Option<SymbolId>,
    pub(crate) has_stack: bool,
}

/// The source line that represents a stack, with its caller and its autograd node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CodeLocation {
    /// The innermost line outside PyTorch; null if the stack has none (autograd thread, or no stack recorded).
    pub frame: Option<FrameReport>,
    /// In a comparison, the line in the first snapshot if the code has moved since; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<FrameReport>,
    /// The innermost line of user code that encloses `frame`. If only packages called it, their innermost line in
    /// another file. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_from: Option<FrameReport>,
    /// In a backward pass, the autograd node, such as `BmmBackward0`; `unknown` if no C++ stack was recorded.
    /// `frame` is then the line that called `backward()`, if the trace shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backward: Option<String>,
    /// The forward line that created the autograd node; only in recordings with anomaly mode, since PyTorch 2.12.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<FrameReport>,
    /// The `torch.compile` region that was running, as PyTorch names it; absent outside compiled code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_context: Option<String>,
    /// A stack was recorded.
    pub has_stack: bool,
}

/// [`CodeLocation`] with the key `culprit` in place of `frame`, for failed requests and their blockers.
#[derive(Serialize)]
#[serde(remote = "CodeLocation")]
pub(crate) struct Culprit {
    /// The innermost line outside PyTorch; null if the stack has none (autograd thread, or no stack recorded).
    #[serde(rename = "culprit")]
    frame: Option<FrameReport>,
    /// See [`CodeLocation::moved_from`].
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<FrameReport>,
    /// See [`CodeLocation::called_from`].
    #[serde(skip_serializing_if = "Option::is_none")]
    called_from: Option<FrameReport>,
    /// See [`CodeLocation::backward`].
    #[serde(skip_serializing_if = "Option::is_none")]
    backward: Option<String>,
    /// See [`CodeLocation::forward`].
    #[serde(skip_serializing_if = "Option::is_none")]
    forward: Option<FrameReport>,
    /// See [`CodeLocation::compile_context`].
    #[serde(skip_serializing_if = "Option::is_none")]
    compile_context: Option<String>,
    /// See [`CodeLocation::has_stack`].
    has_stack: bool,
}

/// Stands for an autograd node that was not recorded.
pub const UNKNOWN_NODE: &str = "unknown";

impl CodeLocation {
    /// One line of text: the code, with its caller or its autograd node.
    pub fn label(&self) -> String {
        let from = |line: &FrameReport| format!(" (called from {})", line.short_label());
        let caller = self.called_from.as_ref().map(from).unwrap_or_default();
        match (self.backward.as_deref(), &self.frame) {
            (Some(UNKNOWN_NODE), Some(line)) => {
                format!("the backward pass of {}{caller}", line.short_label())
            }
            (Some(node), None) => format!("backward: {node}{caller}"),
            (Some(node), Some(line)) => format!("backward: {node}{}", from(line)),
            (None, Some(line)) => format!("{}{caller}", line.short_label()),
            (None, None) if self.has_stack => "stacks without a line of the user's code".to_owned(),
            (None, None) => "blocks without a recorded stack".to_owned(),
        }
    }
}

/// Function names of comprehensions. Their frames repeat lines of the enclosing function.
const COMPREHENSION_NAMES: [&str; 4] = ["<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"];

/// The autograd node that a C++ frame runs: `BmmBackward0` for
/// `torch::autograd::generated::BmmBackward0::apply(...)`. `InputBuffer` and `Engine` stand for the engine's own work
/// between two nodes, such as accumulating gradients.
pub(super) fn autograd_node(name: &str) -> Option<&str> {
    let (_, inside) = name.split_once("torch::autograd::")?;
    let inside = inside.strip_prefix("generated::").unwrap_or(inside);
    let (class, method) = inside.split_once("::")?;
    // Autograd functions that are C++ templates: `CppNode<MyFunction>`.
    let class = class.strip_prefix("CppNode<").and_then(|name| name.strip_suffix('>')).unwrap_or(class);
    let is_name = class.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_node = method.starts_with("apply(") && !matches!(class, "PyNode" | "Node");
    (is_name && (is_node || matches!(class, "InputBuffer" | "Engine"))).then_some(class)
}

/// The parts of a frame that decide which line represents a stack.
pub(super) struct FrameRef<'t, F> {
    pub(super) origin: Origin,
    pub(super) file: F,
    pub(super) line: u32,
    pub(super) name: &'t str,
}

/// Indexes of the innermost frame outside PyTorch and of its most informative caller. `frames` come innermost first.
///
/// The caller is the innermost enclosing user frame on another line; without one, for package code, a package frame in
/// another file.
pub(super) fn find_code_and_caller<'t, F: PartialEq>(
    frames: impl Iterator<Item = FrameRef<'t, F>>,
) -> (Option<usize>, Option<usize>) {
    let is_code = |frame: &FrameRef<'t, F>| matches!(frame.origin, Origin::User | Origin::Package);
    let mut frames = frames.enumerate().filter(|(_, frame)| is_code(frame));
    let Some((code, inner)) = frames.next() else { return (None, None) }; // only PyTorch, or no stack
    let mut package = None;
    for (index, outer) in frames {
        if (&inner.file, inner.line) == (&outer.file, outer.line) || COMPREHENSION_NAMES.contains(&outer.name) {
            continue;
        }
        if outer.origin == Origin::User {
            return (Some(code), Some(index));
        }
        if outer.file != inner.file {
            package = package.or(Some(index));
        }
    }
    // The whole program may be an installed package.
    (Some(code), package.filter(|_| inner.origin == Origin::Package))
}

/// `find_code_and_caller` for the frames of a traceback.
pub fn code_and_caller(frames: &[FrameReport]) -> (Option<FrameReport>, Option<FrameReport>) {
    let (code, caller) = find_code_and_caller(frames.iter().map(|frame| FrameRef {
        origin: frame.origin(),
        file: &frame.file,
        line: frame.line,
        name: &frame.name,
    }));
    let at = |index: Option<usize>| index.and_then(|index| frames.get(index)).cloned();
    (at(code), at(caller))
}

#[cfg(test)]
mod tests {
    use super::autograd_node;

    #[test]
    fn extracts_the_node_name() {
        for (name, wanted) in [
            ("torch::autograd::generated::BmmBackward0::apply(std::vector<>&&)", Some("BmmBackward0")),
            ("torch::autograd::AccumulateGrad::apply(std::vector<>&&)", Some("AccumulateGrad")),
            ("torch::autograd::CopySlices::apply(std::vector<>&&)", Some("CopySlices")),
            ("torch::autograd::CppNode<RoiAlign>::apply(std::vector<>&&)", Some("RoiAlign")),
            ("torch::autograd::InputBuffer::add(unsigned long)", Some("InputBuffer")),
            ("torch::autograd::PyNode::apply(std::vector<>&&)", None),
            ("torch::autograd::Node::operator()(std::vector<>&&)", None),
            ("torch::autograd::Engine::thread_main()", Some("Engine")),
            ("torch::autograd::VariableType::(anonymous namespace)::bmm()", None),
            ("at::_ops::bmm::call(at::Tensor const&)", None),
        ] {
            assert_eq!(autograd_node(name), wanted, "{name}");
        }
    }
}
