//! Frames and stacks, each distinct one once.

use rustc_hash::FxHashMap;

use crate::ids::{FrameId, StackId, SymbolId};
use crate::intern::Slices;

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

/// Every distinct frame and every distinct list of frames, innermost first.
#[derive(Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    known: FxHashMap<Frame, FrameId>,
    lists: Slices<FrameId>,
}

impl Default for Stacks {
    fn default() -> Self {
        let mut stacks =
            Self { frames: Vec::new(), known: FxHashMap::default(), lists: Slices::default() };
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
        StackId(self.lists.intern(frames))
    }

    /// The frames of `stack`, innermost first.
    pub fn frames(&self, stack: StackId) -> &[FrameId] {
        self.lists.get(stack.0)
    }

    /// Frame `id`, which must be of this snapshot.
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.index()]
    }

    /// Every distinct frame.
    pub fn all_frames(&self) -> impl Iterator<Item = Frame> {
        self.frames.iter().copied()
    }

    /// How many distinct stacks there are, the empty one included.
    pub fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether no entry has a stack.
    pub fn is_empty(&self) -> bool {
        self.lists.len() <= 1
    }

    /// How many distinct frames there are.
    pub fn frame_count(&self) -> usize {
        self.frames.len()
    }
}
