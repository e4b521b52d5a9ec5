//! The source line that represents a stack: a line of the user's code or of the package that it called, its caller, and
//! for a backward pass the autograd node.

use serde::Serialize;

use super::frame::FrameReport;
use super::origin::{Origin, is_launcher, package_name};
use crate::base::ids::{FrameId, SymbolId};

/// Identifies the [`CodeLocation`] of a stack. Stacks with equal ids share a table row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId {
    /// The leading line: the innermost frame of the user's code, or of an installed package that it called.
    pub frame: Option<FrameId>,
    /// The innermost frame of user code that encloses `frame`.
    pub caller: Option<FrameId>,
    /// In a backward pass, the C++ frame that names the autograd node; the same frame for all stacks of a node.
    pub node: Option<FrameId>,
    /// The stack belongs to a backward pass: `frame` called `backward()`, or is called by the engine.
    pub is_backward: bool,
    /// In a backward pass, the forward line that created the node (anomaly mode).
    pub forward: Option<FrameId>,
    /// The `torch.compile` region.
    pub compile_context: Option<SymbolId>,
    pub has_stack: bool,
    /// No stack, because the allocation is older than the recording.
    pub is_before_recording: bool,
}

impl LineId {
    /// The same for a block, which `is_older` than the recording or not.
    #[must_use]
    pub fn for_block(self, is_older: bool) -> Self {
        Self { is_before_recording: is_older && !self.has_stack, ..self }
    }
}

/// The source line that represents a stack, with its caller and its autograd node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CodeLocation {
    /// The innermost line outside PyTorch; null if the stack has none (autograd thread, or no stack recorded). If it
    /// belongs to an installed package that is only a helper (several lines of the user's code reach the same line of
    /// the package), the innermost line of the user's code.
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
    /// There is no stack, because the memory was allocated before the recording. Absent if that is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub before_recording: bool,
}

/// [`CodeLocation`] with the key `culprit` in place of `frame`, for failed requests and their blockers.
#[derive(Serialize)]
#[serde(remote = "CodeLocation")]
pub struct Culprit {
    /// The innermost line outside PyTorch; null if the stack has none (autograd thread, or no stack recorded). Lines
    /// of helper packages yield to the user's.
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
    /// See [`CodeLocation::before_recording`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    before_recording: bool,
}

/// Stands for an autograd node that was not recorded.
pub const UNKNOWN_NODE: &str = "unknown";

/// Stands for the line of memory that is older than the recording.
pub const BEFORE_RECORDING: &str = "allocated before the recording";

impl CodeLocation {
    /// The code in a sentence: `app/train.py:12 in step`.
    pub fn label(&self) -> String {
        self.describe(FrameReport::short_label)
    }

    /// The same for a reader who has seen the path: `train.py:12`.
    pub fn brief_label(&self) -> String {
        self.describe(FrameReport::brief_label)
    }

    fn describe(&self, label: impl Fn(&FrameReport) -> String) -> String {
        match (self.backward.as_deref(), &self.frame) {
            (Some(UNKNOWN_NODE), Some(line)) => format!("the backward pass of {}", label(line)),
            (Some(UNKNOWN_NODE), None) => "the backward pass".to_owned(),
            (Some(node), None) => format!("backward: {node}"),
            (Some(node), Some(line)) => format!("backward: {node} (called from {})", label(line)),
            (None, Some(line)) => label(line),
            (None, None) if self.has_stack => "stacks without a line of the user's code".to_owned(),
            (None, None) if self.before_recording => BEFORE_RECORDING.to_owned(),
            (None, None) => "blocks without a recorded stack".to_owned(),
        }
    }
}

/// Functions through which PyTorch calls the `forward` of a module.
const MODULE_CALLS: [&str; 2] = ["_call_impl", "_wrapped_call_impl"];

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

/// The frames outside PyTorch and the standard library that may represent a stack, as indexes into its frames.
pub(super) struct CodeFrames {
    /// The innermost one: the user's code, or an installed package.
    pub(super) innermost: usize,
    /// The innermost one of the user's code, if `innermost` belongs to a package.
    pub(super) user: Option<usize>,
    /// A module's forward pass called the frame `user`.
    pub(super) is_user_in_module: bool,
}

/// The frames of one stack, innermost first. A stack with nothing but packages belongs to an installed program: the
/// package of its outermost frame then counts as the user's code.
pub(super) struct StackFrames<'t, F> {
    frames: Vec<FrameRef<'t, F>>,
}

impl<'t, F: PartialEq> StackFrames<'t, F> {
    /// `package_of` gives the name of the package that a frame with that index belongs to.
    pub(super) fn new(mut frames: Vec<FrameRef<'t, F>>, package_of: impl Fn(usize) -> Option<&'t str>) -> Self {
        if frames.iter().all(|frame| frame.origin != Origin::User) {
            let packages = (0..frames.len()).rev().filter(|index| frames[*index].origin == Origin::Package);
            let mut names = packages.filter_map(&package_of).filter(|name| !is_launcher(name));
            if let Some(program) = names.next() {
                for (index, frame) in frames.iter_mut().enumerate() {
                    if frame.origin == Origin::Package && package_of(index) == Some(program) {
                        frame.origin = Origin::User;
                    }
                }
            }
        }
        Self { frames }
    }

    fn code_frames(&self) -> impl Iterator<Item = (usize, &FrameRef<'t, F>)> {
        self.frames.iter().enumerate().filter(move |(_, frame)| matches!(frame.origin, Origin::User | Origin::Package))
    }

    /// `None` if the stack has PyTorch's frames only, or none.
    pub(super) fn find_code(&self) -> Option<CodeFrames> {
        let (innermost, first) = self.code_frames().next()?;
        let user = self.code_frames().find(|(_, frame)| frame.origin == Origin::User).map(|(index, _)| index);
        let user = user.filter(|_| first.origin == Origin::Package);
        let is_user_in_module = user.is_some() && self.outermost_module_call() > user;
        Some(CodeFrames { innermost, user, is_user_in_module })
    }

    /// The index of the outermost frame through which PyTorch calls a module.
    pub(super) fn outermost_module_call(&self) -> Option<usize> {
        self.frames.iter().rposition(|frame| frame.origin == Origin::Plumbing && MODULE_CALLS.contains(&frame.name))
    }

    /// The most informative caller of the frame `code`: the innermost enclosing user frame on another line; without
    /// one, for package code, a package frame in another file.
    pub(super) fn find_caller(&self, code: usize) -> Option<usize> {
        let inner = self.frames.get(code)?;
        let mut package = None;
        for (index, outer) in self.code_frames().filter(|(index, _)| *index > code) {
            if (&inner.file, inner.line) == (&outer.file, outer.line) || COMPREHENSION_NAMES.contains(&outer.name) {
                continue;
            }
            if outer.origin == Origin::User {
                return Some(index);
            }
            if outer.file != inner.file {
                package = package.or(Some(index));
            }
        }
        package.filter(|_| inner.origin == Origin::Package)
    }
}

/// The line of a traceback that failed, and its caller. One stack does not show whether a package is a helper, so only
/// a line inside the user's own model takes precedence over the package that it called.
pub fn code_and_caller(frames: &[FrameReport]) -> (Option<FrameReport>, Option<FrameReport>) {
    let refs = frames.iter().map(|frame| FrameRef {
        origin: frame.origin,
        file: &frame.file,
        line: frame.line,
        name: &frame.name,
    });
    let stack = StackFrames::new(refs.collect(), |index| frames.get(index).and_then(|frame| package_name(&frame.file)));
    let code = stack.find_code().map(|code| code.user.filter(|_| code.is_user_in_module).unwrap_or(code.innermost));
    let caller = code.and_then(|code| stack.find_caller(code));
    [code, caller].map(|index| frames.get(index?).cloned()).into()
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
