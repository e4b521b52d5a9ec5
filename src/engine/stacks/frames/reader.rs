//! Turns the stacks of a snapshot into frames and code locations for output.

use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use super::frame::{FrameList, FrameReport};
use super::helpers::HelperLines;
use super::location::{CodeFrames, CodeLocation, FrameRef, LineId, StackFrames, UNKNOWN_NODE, autograd_node};
use super::origin::{InstalledCode, Origin, forward_slashes, package_name, strip_directories};
use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::units::escape_name;
use crate::snapshot::{ExtendedStack, Snapshot, Stacks};

// How much of the stacks of one snapshot a report has room for. A file of a few kilobytes can refer to one stack of
// millions of frames from thousands of failed requests: without bounds, its report would have gigabytes.

/// Bytes of JSON for all stacks of a report.
const REPORT_BYTES: usize = 24 << 20;
/// Bytes of a frame in JSON, without its text.
const FRAME_BYTES: usize = 112;
/// Stacks of each device in a report that belong to no failed request: those that hold most memory.
const STACKS_OF_DEVICE: usize = 16;
/// Stacks of a failed request in a report: its own, and those of the blocks beside free memory.
const STACKS_OF_FAILURE: usize = 6;
/// Failed requests in a report.
const FAILURES: usize = 4000;
/// The same for each device: minimum and maximum.
const FAILURES_OF_DEVICE: [usize; 2] = [16, 1000];

/// The operator that a C++ frame runs: `aten::bmm` for `at::_ops::bmm::call(...)`, `BmmBackward0` for
/// `torch::autograd::generated::BmmBackward0::apply(...)`.
fn operator_name(name: &str) -> Option<String> {
    [("at::_ops::", "aten::"), ("torch::autograd::generated::", "")].iter().find_map(|(prefix, shown)| {
        let (op, _) = name.strip_prefix(prefix)?.split_once("::")?;
        Some(escape_name(&format!("{shown}{op}")))
    })
}

/// Reads the stacks of one snapshot; classifies each frame once.
#[derive(Debug)]
pub struct StackReader<'a> {
    snapshot: &'a Snapshot,
    installed: InstalledCode,
    origins: Vec<Origin>,
    /// For each frame that names an autograd node, the first frame with that name.
    node_frames: Vec<Option<FrameId>>,
    /// The frames of the stacks in reports, which are few.
    frame_lists: Mutex<FxHashMap<StackId, FrameList>>,
    /// The room in a report: bytes of JSON for each stack.
    list_bytes: usize,
    /// The room in a report: failed requests of each device.
    pub max_failures: usize,
    /// Computed on first use.
    helper_lines: OnceLock<HelperLines>,
    strips_paths: bool,
}

impl<'a> StackReader<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let frames = snapshot.stacks.frame_ids().map(|id| (id, snapshot.frame_text(id)));
        let installed = InstalledCode::from_frames(frames.clone().map(|(_, text)| text));
        let origins = frames
            .clone()
            .map(|(id, (file, name))| installed.classify(file, snapshot.stacks.frame(id).line, name))
            .collect();
        let mut known = FxHashMap::default();
        let node_frames =
            frames.map(|(id, (_, name))| Some(*known.entry(autograd_node(name)?).or_insert(id))).collect();
        let [minimum, maximum] = FAILURES_OF_DEVICE;
        let max_failures = (FAILURES / snapshot.devices().count().max(1)).clamp(minimum, maximum);
        let failures = snapshot.devices().map(|device| device.failed_requests().count());
        let stacks: usize = failures
            .map(|failed| STACKS_OF_DEVICE + failed.min(max_failures) + failed.min(minimum) * STACKS_OF_FAILURE)
            .sum();
        Self {
            snapshot,
            installed,
            origins,
            node_frames,
            frame_lists: Mutex::default(),
            list_bytes: REPORT_BYTES / stacks.max(1),
            max_failures,
            helper_lines: OnceLock::new(),
            strips_paths: false,
        }
    }

    /// Reports file names without the directories that identify the machine.
    #[must_use]
    pub fn with_stripped_paths(self, strips_paths: bool) -> Self {
        Self { strips_paths, ..self }
    }

    pub fn origin(&self, id: FrameId) -> Origin {
        self.origins[id.index()]
    }

    /// The recorded stack, without the caller and forward stack that the decoder attached to it.
    pub fn recorded_stack(&self, stack: StackId) -> StackId {
        self.snapshot.stacks.recorded_stack(stack)
    }

    /// The origin of the code of a module in `file`.
    pub fn origin_of_file(&self, file: &str) -> Origin {
        self.installed.classify(file, 1, "<module>")
    }

    pub fn frame_report(&self, id: FrameId) -> FrameReport {
        let (file, name) = self.snapshot.frame_text(id);
        self.place_report(file, self.snapshot.stacks.frame(id).line, name, self.origin(id))
    }

    /// A place in the program's own text.
    pub fn statement_report(&self, file: &str, line: u32, function: &str) -> FrameReport {
        self.place_report(file, line, function, Origin::User)
    }

    fn place_report(&self, file: &str, line: u32, name: &str, origin: Origin) -> FrameReport {
        let file = if self.strips_paths { escape_name(&strip_directories(file, origin)) } else { escape_name(file) };
        FrameReport { file, line, name: escape_name(name), origin }
    }

    /// The frames of `stack`, as many as the bounds allow.
    pub fn frame_list(&self, stack: StackId) -> FrameList {
        // A thread that panics while it holds the lock has inserted a whole list or none.
        let mut known = self.frame_lists.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(stack).or_insert_with(|| self.read_frame_list(stack)).clone()
    }

    /// The innermost frames of `stack` that a report has room for; at least one.
    fn read_frame_list(&self, stack: StackId) -> FrameList {
        let ids = self.snapshot.stacks.frames(stack);
        let (mut frames, mut bytes) = (Vec::new(), 0);
        for id in ids.iter() {
            let frame = self.frame_report(id);
            bytes += FRAME_BYTES + frame.file.len() + frame.name.len();
            if bytes > self.list_bytes && !frames.is_empty() {
                break;
            }
            frames.push(frame);
        }
        let left_out = (ids.len() - frames.len()) as u64 + self.snapshot.stacks.frames_left_out(stack);
        FrameList { frames: frames.into(), left_out }
    }

    /// The operation that allocated: the operators in the C++ frames, outermost first (`BmmBackward0 > aten::bmm`);
    /// without any, the innermost frame of PyTorch's Python code.
    pub fn operation(&self, stack: StackId) -> Option<String> {
        let mut operators: Vec<String> = Vec::new();
        for id in self.snapshot.stacks.frames(stack).iter() {
            let (file, name) = self.snapshot.frame_text(id);
            match self.origin(id) {
                Origin::Native => operators.extend(operator_name(name).filter(|op| operators.last() != Some(op))),
                Origin::Torch if operators.is_empty() => {
                    let file = forward_slashes(file);
                    let short = file.rsplit_once("/torch/").map_or(&*file, |(_, inside)| inside);
                    let line = self.snapshot.stacks.frame(id).line;
                    return Some(escape_name(&format!("torch/{short}:{line} {name}")));
                }
                Origin::Plumbing => {}
                _ => break,
            }
        }
        // Redispatch repeats operators in between; only the ends carry information.
        match operators.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            [inner, .., outer] => Some(format!("{outer} > {inner}")),
        }
    }

    pub fn line_id(&self, stack: StackId) -> LineId {
        let maker = self.snapshot.stacks.extended(stack);
        let (own_len, ids) = self.all_frames(maker);
        let frames = self.stack_frames(&ids);
        let code = frames.find_code().map(|code| self.leading_line(&ids, &code));
        let caller = code.and_then(|code| frames.find_caller(code));
        let inside = &ids[..code.unwrap_or(own_len).min(own_len)];
        let [frame, caller] = [code, caller].map(|index| ids.get(index?).copied());
        let node = inside.iter().find_map(|id| self.node_frames[id.index()]);
        let has_own_code = code.is_some_and(|code| code < own_len);
        LineId {
            frame,
            caller,
            node,
            is_backward: node.is_some() || (maker.caller != Stacks::EMPTY && !has_own_code),
            forward: self.innermost_code_frame(maker.forward),
            compile_context: maker.compile_context,
            has_stack: maker.stack != Stacks::EMPTY,
            is_before_recording: false,
        }
    }

    /// The frames of a stack followed by those of the `backward()` call that its thread serves, innermost first, and
    /// the number of frames before that call. The source of generated code precedes the generated frame.
    fn all_frames(&self, maker: ExtendedStack) -> (usize, Vec<FrameId>) {
        let stacks = &self.snapshot.stacks;
        let mut ids = Vec::new();
        for id in stacks.frames(maker.stack).iter() {
            ids.extend(stacks.original_source(id).iter());
            ids.push(id);
        }
        let own = ids.len();
        ids.extend(stacks.frames(maker.caller).iter());
        (own, ids)
    }

    /// The frames of `stack`, innermost first, then those of the `backward()` call that its thread serves.
    pub fn frames_with_callers(&self, stack: StackId) -> Vec<FrameId> {
        self.all_frames(self.snapshot.stacks.extended(stack)).1
    }

    fn stack_frames(&self, ids: &[FrameId]) -> StackFrames<'a, SymbolId> {
        let frame_refs = ids.iter().map(|id| {
            let frame = self.snapshot.stacks.frame(*id);
            let name = self.snapshot.text(frame.name);
            FrameRef { origin: self.origin(*id), file: frame.file, line: frame.line, name }
        });
        StackFrames::new(frame_refs.collect(), |index: usize| {
            package_name(self.snapshot.frame_text(*ids.get(index)?).0)
        })
    }

    /// The index of the frame whose line leads.
    fn leading_line(&self, ids: &[FrameId], code: &CodeFrames) -> usize {
        let Some(user) = code.user else { return code.innermost }; // only packages
        let helpers = self.helper_lines.get_or_init(|| self.helper_lines());
        match (ids.get(code.innermost), ids.get(user)) {
            (Some(package), Some(caller)) if helpers.is_helper(*package, *caller, code.is_user_in_module) => user,
            _ => code.innermost,
        }
    }

    fn helper_lines(&self) -> HelperLines {
        let stacks = (0..self.snapshot.stacks.len()).map(StackId::from_index);
        HelperLines::from_calls(stacks.filter_map(|stack| {
            let ids = self.frames_with_callers(stack);
            let code = self.stack_frames(&ids).find_code()?;
            Some((*ids.get(code.innermost)?, *ids.get(code.user?)?))
        }))
    }

    /// The innermost frame of `stack` outside PyTorch.
    fn innermost_code_frame(&self, stack: StackId) -> Option<FrameId> {
        let ids: Vec<FrameId> = self.snapshot.stacks.frames(stack).iter().collect();
        let code = self.stack_frames(&ids).find_code()?;
        ids.get(self.leading_line(&ids, &code)).copied()
    }

    /// The line that represents `stack`, for output.
    pub fn location_of(&self, stack: StackId) -> CodeLocation {
        self.code_location(self.line_id(stack))
    }

    /// Frame, caller and autograd node of `line`, for output.
    pub fn code_location(&self, line: LineId) -> CodeLocation {
        let node = line.node.and_then(|id| autograd_node(self.snapshot.frame_text(id).1)).map(escape_name);
        CodeLocation {
            frame: line.frame.map(|id| self.frame_report(id)),
            moved_from: None,
            called_from: line.caller.map(|id| self.frame_report(id)),
            backward: node.or_else(|| line.is_backward.then(|| UNKNOWN_NODE.to_owned())),
            forward: line.forward.map(|id| self.frame_report(id)),
            compile_context: line.compile_context.map(|id| escape_name(self.snapshot.text(id))),
            has_stack: line.has_stack,
            before_recording: line.is_before_recording,
        }
    }

    /// The line that runs the model: the innermost frame outside PyTorch around the outermost call of a module.
    pub fn model_call(&self, stack: StackId) -> Option<FrameId> {
        let ids = self.frames_with_callers(stack);
        let outermost = self.stack_frames(&ids).outermost_module_call()?;
        ids.into_iter().skip(outermost).find(|id| matches!(self.origin(*id), Origin::User | Origin::Package))
    }

    /// The number of modules whose calls enclose a request.
    pub fn module_calls(&self, stack: StackId) -> usize {
        let recorded = self.snapshot.stacks.frames(stack).iter();
        recorded.filter(|frame| self.snapshot.frame_text(*frame).1 == "_call_impl").count()
    }

    /// The innermost recorded frame of Python; `None` in a thread of the backward pass.
    pub(crate) fn python_frame(&self, stack: StackId) -> Option<FrameId> {
        self.snapshot.stacks.frames(stack).iter().find(|frame| self.origin(*frame) != Origin::Native)
    }

    /// The innermost frame of user code; without one, of an installed package (the program itself may be one).
    pub fn user_frame(&self, stack: StackId) -> Option<FrameId> {
        let ids = self.frames_with_callers(stack);
        let mut origins = [Origin::User, Origin::Package].into_iter();
        origins.find_map(|origin| ids.iter().copied().find(|id| self.origin(*id) == origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extracts_the_operator_name() {
        assert_eq!(operator_name("at::_ops::bmm::redispatch(c10::DispatchKeySet)").unwrap(), "aten::bmm");
        assert_eq!(
            operator_name("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)").unwrap(),
            "BmmBackward0"
        );
        assert_eq!(operator_name("c10::Dispatcher::call"), None);
    }
}
