//! What a stack says about the phase it was allocated in.

use super::frame_sign::{FrameSign, Makes};
use super::phase::Phase;
use crate::base::ids::{FrameId, StackId};
use crate::snapshot::Snapshot;
use crate::stacks::frames::{Origin, StackReader};

/// Everything that is read from a stack.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Signs {
    /// The phase that it names; `None` for the program's own code that tells nothing, and where stacks
    /// were not recorded.
    pub(crate) phase: Option<Phase>,
    /// What names a phase, if anything does, is what code of any kind has: a constructor, a choice, a file that
    /// is read.
    pub(crate) is_vague: bool,
    /// A model's forward is among its frames.
    pub(crate) is_forward: bool,
    /// Who runs the code, if it is the program's own.
    pub(crate) caller: Option<Caller>,
    /// What memory its code is known to make.
    pub(crate) makes: Option<Makes>,
    /// What it frees are gradients: a model's or an optimizer's `zero_grad`.
    pub(crate) is_zero_grad: bool,
    /// Which of its own code the program runs there, as far as names and callers tell.
    pub(crate) own: Option<Own>,
}

/// Code of the program's own of which the names or the callers tell something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Own {
    /// A constructor of anything.
    Constructor,
    /// Code that reads a file.
    Loader,
    /// An optimizer's constructor, by the name of its file.
    Optimizer,
    /// A step that PyTorch calls as an optimizer's.
    Step,
}

/// Who runs code of the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The program: its stack begins where a thread does. One of a backward pass, which is C++, begins in
    /// the middle of Python.
    Program,
    /// An optimizer that was handed it, as a closure.
    Optimizer,
}

/// Reads stacks, each frame judged once.
pub(super) struct SignReader<'a> {
    snapshot: &'a Snapshot,
    marks: Vec<(FrameSign, Origin)>,
    /// Of each frame, whether threads of a program begin there.
    is_top: Vec<bool>,
    /// Of each frame, whether its name is that of an optimizer's step.
    is_step: Vec<bool>,
    /// Whether a stack without a caller is of a thread of the backward pass: Python frames are
    /// recorded, and some of them belong to training.
    bare_is_backward: bool,
}

impl<'a> SignReader<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, stacks: &StackReader<'_>) -> Self {
        let mark = |id: usize| {
            let id = FrameId::from_index(id);
            let origin = stacks.origin(id);
            let frame = snapshot.stacks.frame(id);
            let (file, name) = (snapshot.text(frame.file), snapshot.text(frame.name));
            (FrameSign::of(file, name, origin), origin)
        };
        let marks: Vec<(FrameSign, Origin)> =
            (0..snapshot.stacks.frame_count()).map(mark).collect();
        let bare_is_backward = marks.iter().any(|(mark, origin)| {
            *origin != Origin::Native
                && matches!(mark.phase(), Some(Phase::Backward | Phase::Optimizer))
        });
        let named = |names: &[&str]| {
            let name = |id| snapshot.text(snapshot.stacks.frame(FrameId::from_index(id)).name);
            (0..snapshot.stacks.frame_count()).map(|id| names.contains(&name(id))).collect()
        };
        let (is_top, is_step) = (named(&["<module>", "_bootstrap"]), named(&["step"]));
        Self { snapshot, marks, is_top, is_step, bare_is_backward }
    }

    pub(super) fn read(&self, stack: StackId) -> Signs {
        let mut signs = Signs::default();
        let (mut first, mut weak, mut is_backward, mut is_bare) = (None, None, false, true);
        let (mut is_others, mut is_closure, mut is_from_the_top) = (false, false, false);
        let (mut is_innermost, mut is_step) = (true, false);
        for id in self.snapshot.stacks.frames(stack) {
            let (mark, origin) = &self.marks[id.index()];
            let is_step_of_torch = matches!(mark, FrameSign::Step | FrameSign::PreparedStep);
            is_closure |= is_step_of_torch && is_others;
            if matches!(origin, Origin::User | Origin::Package) {
                (is_others, is_step) = (true, self.is_step[id.index()]);
            }
            let own = match mark {
                FrameSign::Constructor if *origin == Origin::Torch => Some(Own::Loader),
                FrameSign::Constructor => Some(Own::Constructor),
                FrameSign::ConstructorOfOptimizer => Some(Own::Optimizer),
                FrameSign::Optimizer if is_step && *origin == Origin::Torch => Some(Own::Step),
                _ => None,
            };
            signs.own = signs.own.max(own);
            match mark {
                FrameSign::Optimizer | FrameSign::Step | FrameSign::PreparedStep if is_closure => {}
                FrameSign::Constructor | FrameSign::ConstructorOfOptimizer | FrameSign::Picks => {
                    weak = weak.or(mark.phase());
                }
                _ => first = first.or(mark.phase()),
            }
            if *origin != Origin::Native {
                is_from_the_top = self.is_top[id.index()];
            }
            is_backward |= mark.phase() == Some(Phase::Backward);
            // The threads of the backward pass are C++: what Python they run was called from there.
            is_bare &= *origin == Origin::Torch;
            signs.is_forward |= *mark == FrameSign::Forward;
            // Of what collectives' code calls, a model's forward pass is a part.
            let makes = match mark {
                FrameSign::Carrier if is_innermost => Some(Makes::Communication),
                FrameSign::Buckets if is_innermost => Some(Makes::Buckets),
                FrameSign::PreparedStep if !is_others => Some(Makes::Step),
                _ => mark.makes(),
            };
            signs.makes = signs.makes.or(makes);
            signs.is_zero_grad |= *mark == FrameSign::ZeroGrad;
            is_innermost &= *origin == Origin::Native;
        }
        let phase = match first.or(weak) {
            // What a backward pass computes again, and what it runs on the way.
            Some(Phase::Forward | Phase::Init | Phase::Data) if is_backward => {
                Some(Phase::Backward)
            }
            None if is_bare && self.bare_is_backward => Some(Phase::Backward),
            first => first,
        };
        signs.phase = phase;
        signs.is_vague = first.is_none();
        signs.caller = match () {
            () if is_closure => Some(Caller::Optimizer),
            () => is_from_the_top.then_some(Caller::Program),
        };
        signs
    }
}
