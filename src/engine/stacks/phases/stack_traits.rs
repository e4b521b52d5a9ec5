//! The phase and the purpose of an allocation, as far as its stack reveals them.

use super::frame_role::{FrameRole, KnownPurpose, Phase, builds_megatron_buffers};
use crate::base::ids::{FrameId, StackId};
use crate::snapshot::Snapshot;
use crate::stacks::engines::Engine;
use crate::stacks::frames::{Origin, StackReader};

/// The facts that a stack reveals about its allocation.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct StackTraits {
    /// `None` for user code that names no phase, and if no stack was recorded.
    pub phase: Option<Phase>,
    /// No frame names a phase reliably: at most one that any code may have, such as a constructor, `__getitem__` or a
    /// file loader.
    pub(crate) is_phase_weak: bool,
    pub has_forward_frame: bool,
    /// The runner of user code.
    pub(crate) caller: Option<Caller>,
    pub purpose: Option<KnownPurpose>,
    /// A free by this stack drops gradients: `zero_grad` of a model or an optimizer.
    pub(crate) is_zero_grad: bool,
    pub(crate) routine: Option<Routine>,
    /// The serving engine whose code ran.
    pub(crate) engine: Option<&'static Engine>,
    /// An optimizer of PyTorch works on all parameters at once (`foreach`).
    pub is_foreach_step: bool,
}

/// A routine outside PyTorch's core that is recognizable by its name or caller. Later variants take precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routine {
    /// Any constructor.
    Constructor,
    /// Code that loads a file.
    FileLoader,
    /// A constructor in a file named after an optimizer.
    OptimizerConstructor,
    /// A custom `step` that PyTorch's optimizer code calls.
    OptimizerStep,
}

/// The runner of user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The program: the outermost Python frame is a thread's entry point. In a backward pass, whose threads are C++,
    /// it is not.
    Program,
    /// An optimizer that was given it as a closure.
    Optimizer,
}

impl StackTraits {
    /// Whether a serving engine allocated a buffer when it started, such as for inputs or sampling: no weight, no cache.
    pub(crate) fn is_buffer_of_engine(&self) -> bool {
        self.engine.is_some() && self.phase == Some(Phase::Init) && self.purpose.is_none()
    }
}

/// The facts that a frame reveals about the allocations inside it.
struct FrameTraits {
    role: FrameRole,
    origin: Origin,
    engine: Option<&'static Engine>,
    /// The entry point of a Python thread.
    is_thread_entry: bool,
    /// The function is called `step`.
    is_named_step: bool,
}

impl FrameTraits {
    /// `is_custom_step`: it calls a `step` that is not PyTorch's.
    fn routine(&self, is_custom_step: bool) -> Option<Routine> {
        match self.role {
            FrameRole::Constructor if self.origin == Origin::Torch => Some(Routine::FileLoader),
            FrameRole::Constructor => Some(Routine::Constructor),
            FrameRole::OptimizerConstructor => Some(Routine::OptimizerConstructor),
            FrameRole::InPhase(Phase::Optimizer) if is_custom_step && self.origin == Origin::Torch => {
                Some(Routine::OptimizerStep)
            }
            _ => None,
        }
    }

    /// `is_direct`: it calls no other Python code. `calls_user_code`: it calls code outside PyTorch.
    fn purpose(&self, is_direct: bool, calls_user_code: bool) -> Option<KnownPurpose> {
        match self.role {
            // Code that wraps collectives also calls the model, so only its direct allocations count.
            FrameRole::CollectiveWrapper if is_direct => Some(KnownPurpose::Communication),
            FrameRole::GradientBuckets if is_direct => Some(KnownPurpose::GradientBuckets),
            FrameRole::StepWithReadyState if !calls_user_code => Some(KnownPurpose::OptimizerStep),
            _ => self.role.purpose(),
        }
    }
}

/// Reads the traits of stacks; classifies each frame once.
pub(super) struct TraitReader<'a> {
    snapshot: &'a Snapshot,
    frames: Vec<FrameTraits>,
    /// A stack with nothing but PyTorch's frames belongs to a backward pass: Python frames were recorded, and some of
    /// them belong to training.
    torch_only_is_backward: bool,
}

impl<'a> TraitReader<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, stacks: &StackReader<'_>) -> Self {
        let frames = snapshot.stacks.frame_ids().map(|id| {
            let (origin, (file, name)) = (stacks.origin(id), snapshot.frame_text(id));
            FrameTraits {
                role: FrameRole::classify(file, name, origin),
                origin,
                engine: Engine::of_file(file),
                is_thread_entry: matches!(name, "<module>" | "_bootstrap"),
                is_named_step: name == "step",
            }
        });
        let mut frames: Vec<FrameTraits> = frames.collect();
        mark_megatron_buffers(snapshot, &mut frames);
        let torch_only_is_backward = frames.iter().any(|frame| {
            frame.origin != Origin::Native && matches!(frame.role.phase(), Some(Phase::Backward | Phase::Optimizer))
        });
        Self { snapshot, frames, torch_only_is_backward }
    }

    pub(super) fn read(&self, stack: StackId) -> StackTraits {
        let mut traits = StackTraits::default();
        let (mut strong_phase, mut weak_phase, mut is_backward, mut is_torch_only) = (None, None, false, true);
        let (mut has_outer_code, mut is_optimizer_closure, mut starts_at_thread_entry) = (false, false, false);
        let (mut is_direct, mut is_custom_step) = (true, false);
        for id in self.snapshot.stacks.frames(stack).iter() {
            let frame = &self.frames[id.index()];
            let (role, origin) = (frame.role, frame.origin);
            if (role, origin) == (FrameRole::Nothing, Origin::Native) {
                is_torch_only = false; // most frames of a stack with C++ frames
                continue;
            }
            let is_step_of_torch = matches!(role, FrameRole::StepCreatingState | FrameRole::StepWithReadyState);
            is_optimizer_closure |= is_step_of_torch && has_outer_code;
            if matches!(origin, Origin::User | Origin::Package) {
                (has_outer_code, is_custom_step) = (true, frame.is_named_step);
            }
            traits.routine = traits.routine.max(frame.routine(is_custom_step));
            traits.engine = traits.engine.or(frame.engine);
            match role {
                FrameRole::InPhase(Phase::Optimizer)
                | FrameRole::StepCreatingState
                | FrameRole::StepWithReadyState
                | FrameRole::ForeachStep
                    if is_optimizer_closure => {}
                FrameRole::Constructor | FrameRole::OptimizerConstructor | FrameRole::Indexing => {
                    weak_phase = weak_phase.or(role.phase());
                }
                _ => strong_phase = strong_phase.or(role.phase()),
            }
            if origin != Origin::Native {
                starts_at_thread_entry = frame.is_thread_entry;
            }
            is_backward |= role.phase() == Some(Phase::Backward);
            // Threads of the backward pass are C++; their Python frames are called from C++.
            is_torch_only &= origin == Origin::Torch;
            traits.has_forward_frame |= role == FrameRole::InPhase(Phase::Forward);
            traits.purpose = traits.purpose.or(frame.purpose(is_direct, has_outer_code));
            traits.is_zero_grad |= role == FrameRole::ZeroGrad;
            traits.is_foreach_step |= role == FrameRole::ForeachStep;
            is_direct &= origin == Origin::Native;
        }
        traits.phase = match strong_phase.or(weak_phase) {
            // Recomputation, and hooks that run during a backward pass.
            Some(Phase::Forward | Phase::Init | Phase::Data) if is_backward => Some(Phase::Backward),
            None if is_torch_only && self.torch_only_is_backward => Some(Phase::Backward),
            phase => phase,
        };
        traits.is_phase_weak = strong_phase.is_none();
        let program = starts_at_thread_entry.then_some(Caller::Program);
        traits.caller = if is_optimizer_closure { Some(Caller::Optimizer) } else { program };
        traits
    }
}

/// Megatron-LM's constructor allocates a buffer of parameters, if any, then one of gradients: its last line that allocates.
fn mark_megatron_buffers(snapshot: &Snapshot, frames: &mut [FrameTraits]) {
    let buffers: Vec<FrameId> =
        snapshot.stacks.frame_ids().filter(|id| builds_megatron_buffers(snapshot.frame_text(*id))).collect();
    let last_line = buffers.iter().map(|id| snapshot.stacks.frame(*id).line).max();
    for id in buffers {
        let is_last = Some(snapshot.stacks.frame(id).line) == last_line;
        let purpose = if is_last { KnownPurpose::GradientBuffer } else { KnownPurpose::Parameters };
        frames[id.index()].role = FrameRole::Allocates(purpose);
    }
}
