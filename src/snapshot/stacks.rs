//! Frames and stacks, each distinct one once.

use crate::base::ids::{FrameId, StackId, SymbolId};
use crate::base::intern::{SeededMap, Slices};

/// One line of a traceback. A frame known only as text (PyTorch 2.0 wrote C++ frames so) has the
/// text as its name, an empty file and line 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// File name as recorded; `??` for most C++ frames.
    pub file: SymbolId,
    /// Function name.
    pub name: SymbolId,
    /// Line number, 0 when there is none.
    pub line: u32,
}

/// Who made memory: a stack, and what else a file says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Maker {
    /// As recorded.
    pub stack: StackId,
    /// Of a thread of a backward pass, the stack of the call, which goes on where `stack` ends.
    pub caller: StackId,
    /// The line of the forward pass that the node of a backward pass stands for.
    pub forward: StackId,
    /// The region of compiled code.
    pub compile_context: Option<SymbolId>,
}

/// Every distinct frame and every distinct list of frames, innermost first.
#[derive(Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    known: SeededMap<Frame, FrameId>,
    lists: Slices<FrameId>,
    /// Those that are more than a stack: their ids are those after the last stack's.
    makers: Vec<Maker>,
    known_makers: SeededMap<Maker, StackId>,
    /// Of frames of code that a program wrote, the source that it was written from.
    originals: SeededMap<FrameId, StackId>,
}

impl Maker {
    /// Of which no more is known than the stack.
    pub(super) fn of(stack: StackId) -> Self {
        Self { stack, caller: Stacks::EMPTY, forward: Stacks::EMPTY, compile_context: None }
    }
}

impl Default for Stacks {
    fn default() -> Self {
        let mut stacks = Self {
            frames: Vec::new(),
            known: SeededMap::default(),
            lists: Slices::default(),
            makers: Vec::new(),
            known_makers: SeededMap::default(),
            originals: SeededMap::default(),
        };
        stacks.intern(&[]);
        stacks
    }
}

impl Stacks {
    /// The stack of an entry that has none.
    pub const EMPTY: StackId = StackId(0);

    pub(super) fn intern_frame(&mut self, frame: Frame) -> FrameId {
        *self.known.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            FrameId::from_index(self.frames.len() - 1)
        })
    }

    pub(super) fn intern(&mut self, frames: &[FrameId]) -> StackId {
        debug_assert!(self.makers.is_empty(), "ids of makers come after those of stacks");
        StackId(self.lists.intern(frames))
    }

    /// An id for `maker`: the stack's own where it is no more than that.
    pub(super) fn intern_maker(&mut self, maker: Maker) -> StackId {
        if maker == Maker::of(maker.stack) {
            return maker.stack;
        }
        let (lists, makers) = (self.lists.len(), &mut self.makers);
        *self.known_makers.entry(maker).or_insert_with(|| {
            makers.push(maker);
            StackId::from_index(lists + makers.len() - 1)
        })
    }

    pub(super) fn set_original(&mut self, frame: FrameId, source: StackId) {
        self.originals.insert(frame, source);
    }

    /// What is known of who made memory beside the stack.
    pub fn maker(&self, id: StackId) -> Maker {
        let extended = id.index().checked_sub(self.lists.len());
        extended.and_then(|row| self.makers.get(row)).copied().unwrap_or(Maker::of(id))
    }

    /// The stack that was recorded.
    pub fn recorded(&self, id: StackId) -> StackId {
        self.maker(id).stack
    }

    /// The frames of the source that a frame of generated code was written from, innermost first.
    pub fn original(&self, frame: FrameId) -> &[FrameId] {
        self.originals.get(&frame).map(|source| self.frames(*source)).unwrap_or_default()
    }

    /// The recorded frames of `stack`, innermost first.
    pub fn frames(&self, stack: StackId) -> &[FrameId] {
        self.lists.get(self.recorded(stack).0)
    }

    /// Frame `id`, which must be of this snapshot.
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.index()]
    }

    /// Every distinct frame.
    pub fn all_frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.iter().copied()
    }

    /// How many ids there are: of distinct stacks, the empty one included, and of makers.
    pub fn len(&self) -> usize {
        self.lists.len() + self.makers.len()
    }

    /// Whether nothing in the file has a stack.
    pub fn is_empty(&self) -> bool {
        self.lists.len() <= 1
    }

    /// How many distinct frames there are.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}
