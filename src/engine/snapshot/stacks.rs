//! Frames and stacks, interned.

use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::SeededMap;

use super::frame_lists::{FrameIds, FrameLists};

/// Numbers of innermost and of outermost frames kept of a longer stack. The innermost allocate, the outermost show the
/// loop of the program. Python stops at a depth of 1000 by default.
const KEPT_FRAMES: [usize; 2] = [1536, 512];

/// A frame of a stack. PyTorch 2.0 wrote C++ frames as text: such a frame has the text as its name, an empty file and
/// line 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// File name as recorded; `??` for most C++ frames.
    pub file: SymbolId,
    /// Function name.
    pub name: SymbolId,
    /// Line number; 0 if there is none.
    pub line: u32,
}

/// A recorded stack with its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtendedStack {
    /// The stack as recorded.
    pub stack: StackId,
    /// For an autograd thread, the Python stack that started the backward pass; it continues `stack` outwards.
    pub caller: StackId,
    /// For an autograd node, the stack of the forward operation (anomaly mode).
    pub forward: StackId,
    /// The compiled region.
    pub compile_context: Option<SymbolId>,
}

/// Distinct frames and distinct stacks, innermost frame first.
#[derive(Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    known: SeededMap<Frame, FrameId>,
    lists: FrameLists,
    /// For stacks that are not kept whole, the number of frames left out.
    left_out: SeededMap<StackId, u64>,
    /// Stacks with context. Their ids follow those of the plain stacks.
    extended: Vec<ExtendedStack>,
    extended_ids: SeededMap<ExtendedStack, StackId>,
    /// For frames of generated code, the stack of the original source.
    pub(super) originals: SeededMap<FrameId, StackId>,
}

impl ExtendedStack {
    pub(super) fn from_stack(stack: StackId) -> Self {
        Self { stack, caller: Stacks::EMPTY, forward: Stacks::EMPTY, compile_context: None }
    }
}

impl Default for Stacks {
    fn default() -> Self {
        let mut stacks = Self {
            frames: Vec::new(),
            known: SeededMap::default(),
            lists: FrameLists::default(),
            left_out: SeededMap::default(),
            extended: Vec::new(),
            extended_ids: SeededMap::default(),
            originals: SeededMap::default(),
        };
        stacks.intern(&[]);
        stacks
    }
}

impl Stacks {
    /// The stack of entries without one.
    pub const EMPTY: StackId = StackId(0);

    pub(crate) fn intern_frame(&mut self, frame: Frame) -> FrameId {
        *self.known.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            FrameId::from_index(self.frames.len() - 1)
        })
    }

    pub(crate) fn intern(&mut self, frames: &[FrameId]) -> StackId {
        debug_assert!(self.extended.is_empty(), "ids of extended come after those of stacks");
        let [inner, outer] = KEPT_FRAMES;
        let left_out = frames.len().saturating_sub(inner + outer);
        if left_out == 0 {
            return StackId(self.lists.intern(frames));
        }
        let kept = [&frames[..inner], &frames[inner + left_out..]].concat();
        let id = StackId(self.lists.intern(&kept));
        self.left_out.insert(id, left_out as u64);
        id
    }

    /// The id of `extended_stack`; that of its plain stack if it has no context.
    pub(super) fn intern_extended(&mut self, extended_stack: ExtendedStack) -> StackId {
        if extended_stack == ExtendedStack::from_stack(extended_stack.stack) {
            return extended_stack.stack;
        }
        let (lists, extended) = (self.lists.len(), &mut self.extended);
        *self.extended_ids.entry(extended_stack).or_insert_with(|| {
            extended.push(extended_stack);
            StackId::from_index(lists + extended.len() - 1)
        })
    }

    /// The stack `id` with its context.
    pub fn extended(&self, id: StackId) -> ExtendedStack {
        let extended = id.index().checked_sub(self.lists.len());
        extended.and_then(|row| self.extended.get(row)).copied().unwrap_or(ExtendedStack::from_stack(id))
    }

    /// The stack `id` without its context, as it was recorded.
    pub fn recorded_stack(&self, id: StackId) -> StackId {
        self.extended(id).stack
    }

    /// For a frame of generated code, the frames of the original source, innermost first; empty for other code.
    pub fn original_source(&self, frame: FrameId) -> FrameIds<'_> {
        // Most code is not generated.
        self.originals.get(&frame).map_or(FrameIds::EMPTY, |source| self.frames(*source))
    }

    /// Number of frames between the innermost and the outermost frames of `stack` that were not kept.
    pub fn frames_left_out(&self, stack: StackId) -> u64 {
        self.left_out.get(&self.recorded_stack(stack)).copied().unwrap_or(0)
    }

    /// The frames of `stack` as recorded, innermost first; without some in the middle if there are thousands.
    pub fn frames(&self, stack: StackId) -> FrameIds<'_> {
        self.lists.get(self.recorded_stack(stack).0)
    }

    /// Frame `id`, which must belong to this snapshot.
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.index()]
    }

    /// The ids of the distinct frames of all stacks.
    pub fn frame_ids(&self) -> impl Iterator<Item = FrameId> + Clone + use<> {
        (0..self.frames.len()).map(FrameId::from_index)
    }

    /// The distinct frames of all stacks.
    pub fn all_frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.iter().copied()
    }

    /// Number of ids: plain stacks, including the empty one, and stacks with context.
    pub fn len(&self) -> usize {
        self.lists.len() + self.extended.len()
    }

    /// Whether no record of the file has a stack.
    pub fn is_empty(&self) -> bool {
        self.lists.len() <= 1
    }
}
