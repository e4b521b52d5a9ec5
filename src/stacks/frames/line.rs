//! What people read of a stack: the innermost line of code that is not PyTorch's, the user's own line that it
//! was called from, and of a backward pass the node.

use serde::Serialize;

use super::frame::FrameReport;
use super::origin::Origin;
use crate::base::ids::{FrameId, SymbolId};

/// What a stack is named by. Stacks that are named alike are one row of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LineId {
    /// The innermost frame of code that is not PyTorch's: the user's, or an installed package's.
    pub(crate) code: Option<FrameId>,
    /// The innermost frame of the user's own code outside of that.
    pub(crate) caller: Option<FrameId>,
    /// Of a backward pass, the frame of C++ that names its node; one frame stands for all of the node.
    pub(crate) node: Option<FrameId>,
    /// Whether it is of a backward pass: the line is then the one that called that, or is called by it.
    pub(crate) is_backward: bool,
    /// Of a backward pass, the line of the forward pass that the node stands for.
    pub(crate) forward: Option<FrameId>,
    /// The region of compiled code.
    pub(crate) compiled: Option<SymbolId>,
    /// Whether a stack was recorded at all.
    pub(crate) has_stack: bool,
}

/// The line of code that a stack is named by, with the lines and the autograd node that belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CodeLocation {
    /// The innermost line that is not PyTorch's; null for stacks without one (autograd threads, no stack recorded).
    pub frame: Option<FrameReport>,
    /// In a comparison, the line in the earlier snapshot where the code has moved since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<FrameReport>,
    /// The innermost line of the user's own code outside of the line; of code that belongs to a package alone,
    /// that package's or another's. Absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called_from: Option<FrameReport>,
    /// Of a thread of a backward pass, the node of autograd that ran, such as `BmmBackward0`; `unknown` where
    /// its stack was not recorded. The line is then the one that called `backward()`, where the trace shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backward: Option<String>,
    /// The line of the forward pass that the node stands for, recorded in anomaly mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<FrameReport>,
    /// The region of compiled code that ran, as PyTorch names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compile_context: Option<String>,
    /// Whether a stack was recorded at all.
    pub has_stack: bool,
}

/// [`CodeLocation`] with the key `culprit` in place of `frame`, for failed requests and the blocks in their way.
#[derive(Serialize)]
#[serde(remote = "CodeLocation")]
pub(crate) struct Culprit {
    /// The innermost line that is not PyTorch's; null for stacks without one (autograd threads, no stack recorded).
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

/// In place of a node that is not known.
pub const UNKNOWN: &str = "unknown";

impl CodeLocation {
    /// One line of text: the code, and its caller or its autograd node.
    pub fn label(&self) -> String {
        let from = |line: &FrameReport| format!(" (called from {})", line.in_short());
        let caller = self.called_from.as_ref().map(from).unwrap_or_default();
        match (self.backward.as_deref(), &self.frame) {
            (Some(UNKNOWN), Some(line)) => {
                format!("the backward pass of {}{caller}", line.in_short())
            }
            (Some(node), None) => format!("backward: {node}{caller}"),
            (Some(node), Some(line)) => format!("backward: {node}{}", from(line)),
            (None, Some(line)) => format!("{}{caller}", line.in_short()),
            (None, None) if self.has_stack => "stacks without a line of the user's code".to_owned(),
            (None, None) => "blocks without a recorded stack".to_owned(),
        }
    }
}

/// What a comprehension calls its function: it stands on the lines of the function around it.
const COMPREHENSIONS: [&str; 4] = ["<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"];

/// The node of autograd that a C++ frame runs: `BmmBackward0` of
/// `torch::autograd::generated::BmmBackward0::apply(...)`. What the engine does between two nodes, adding up
/// gradients and checking them, is `InputBuffer` and `Engine`.
pub(super) fn node(name: &str) -> Option<&str> {
    let (_, inside) = name.split_once("torch::autograd::")?;
    let inside = inside.strip_prefix("generated::").unwrap_or(inside);
    let (class, method) = inside.split_once("::")?;
    // Autograd functions that are C++ templates: `CppNode<MyFunction>`.
    let class = class.strip_prefix("CppNode<").and_then(|of| of.strip_suffix('>')).unwrap_or(class);
    let is_name = class.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_node = method.starts_with("apply(") && !matches!(class, "PyNode" | "Node");
    (is_name && (is_node || matches!(class, "InputBuffer" | "Engine"))).then_some(class)
}

/// One frame, as far as it matters here; innermost come first.
pub(super) struct Seen<'t, F> {
    pub(super) origin: Origin,
    /// What tells one file from another.
    pub(super) file: F,
    pub(super) line: u32,
    pub(super) name: &'t str,
}

/// Of the frames of a stack: the innermost of code that is not PyTorch's, and the one it was called from, which
/// tells something beside it. Both are the user's where they can be.
pub(super) fn two_lines<'t, F: PartialEq>(
    frames: impl Iterator<Item = Seen<'t, F>>,
) -> (Option<usize>, Option<usize>) {
    let is_code = |frame: &Seen<'t, F>| matches!(frame.origin, Origin::User | Origin::Package);
    let mut frames = frames.enumerate().filter(|(_, frame)| is_code(frame));
    let Some((code, inner)) = frames.next() else { return (None, None) };
    let mut package = None;
    for (index, outer) in frames {
        if (&inner.file, inner.line) == (&outer.file, outer.line)
            || COMPREHENSIONS.contains(&outer.name)
        {
            continue;
        }
        if outer.origin == Origin::User {
            return (Some(code), Some(index));
        }
        if outer.file != inner.file {
            package = package.or(Some(index));
        }
    }
    // A program may be an installed package as a whole.
    (Some(code), package.filter(|_| inner.origin == Origin::Package))
}

/// The same of the frames of a traceback.
pub fn lines_of(frames: &[FrameReport]) -> (Option<FrameReport>, Option<FrameReport>) {
    let (code, caller) = two_lines(frames.iter().map(|frame| Seen {
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
    use super::node;

    #[test]
    fn nodes_are_named() {
        for (name, wanted) in [
            (
                "torch::autograd::generated::BmmBackward0::apply(std::vector<>&&)",
                Some("BmmBackward0"),
            ),
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
            assert_eq!(node(name), wanted, "{name}");
        }
    }
}
