//! What a stack says about the phase it was allocated in.

use super::phase::Phase;
use crate::frames::{Origin, StackReader, slashed};
use crate::ids::{FrameId, StackId};
use crate::snapshot::Snapshot;

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

/// What PyTorch's own code is known to make memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Makes {
    /// Code that builds, moves or loads a model.
    Parameters,
    /// Code that sets up an optimizer.
    OptimizerState,
    /// C++ that keeps a gradient.
    Gradients,
    /// C++ that gets scratch memory for cuBLAS, kept for good.
    Workspace,
}

/// What one frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameSign {
    /// Nothing.
    Nothing,
    /// A constructor of anything, a file that holds anything: init, unless something around it tells more.
    Constructor,
    /// Code that picks from anything: data, likewise.
    Picks,
    Init,
    /// Init, by PyTorch's own code for parameters.
    Parameter,
    Data,
    Forward,
    Backward,
    Optimizer,
    /// Optimizer, by a step of PyTorch's: what others do inside, they were handed to it for.
    Step,
    /// Optimizer, by PyTorch's code that sets up its state.
    State,
    /// Init, likewise.
    StateOfInit,
    Gradient,
    Workspace,
}

impl FrameSign {
    fn phase(self) -> Option<Phase> {
        Some(match self {
            Self::Nothing | Self::Workspace => return None,
            Self::Constructor | Self::Init | Self::Parameter | Self::StateOfInit => Phase::Init,
            Self::Picks | Self::Data => Phase::Data,
            Self::Forward => Phase::Forward,
            Self::Backward | Self::Gradient => Phase::Backward,
            Self::Optimizer | Self::Step | Self::State => Phase::Optimizer,
        })
    }

    fn makes(self) -> Option<Makes> {
        Some(match self {
            Self::Parameter => Makes::Parameters,
            Self::State | Self::StateOfInit => Makes::OptimizerState,
            Self::Gradient => Makes::Gradients,
            Self::Workspace => Makes::Workspace,
            _ => return None,
        })
    }

    /// Reads a frame. PyTorch's file and function names are those of its releases 2.1 to 2.15.
    fn of(file: &str, name: &str, origin: Origin) -> Self {
        if origin == Origin::Native {
            return native(name);
        }
        let file = &*slashed(file);
        if matches!(name, "backward" | "_engine_run_backward" | "unpack_hook" | "recompute_fn") {
            return Self::Backward;
        }
        if name == "_call_impl" || name == "_wrapped_call_impl" || name == "forward" {
            return Self::Forward;
        }
        let inside = match origin {
            Origin::Torch => file.rsplit_once("torch/").map_or(file, |(_, inside)| inside),
            _ => return of_others(file, name),
        };
        // `rsplit_once` would cut at a torch/ inside PyTorch, which there is none of.
        match (inside, name) {
            ("nn/modules/module.py", "_apply" | "load_state_dict" | "to_empty")
            | (_, "reset_parameters" | "_ddp_init_helper")
            | ("nn/init.py" | "nn/parameter.py", _)
            // A second model, the average of the first.
            | ("optim/swa_utils.py", "__init__") => Self::Parameter,
            (_, "__init__") if inside.starts_with("nn/") => Self::Parameter,
            ("serialization.py", _) => Self::Constructor,
            ("optim/optimizer.py", "zero_grad") => Self::Nothing,
            (_, "__init__" | "add_param_group") if inside.starts_with("optim/") => {
                Self::StateOfInit
            }
            (_, "_init_group" | "_init_state") if inside.starts_with("optim/") => Self::State,
            // The one in optimizer.py wraps the steps of others as well.
            (_, "step") if inside.starts_with("optim/") && inside != "optim/optimizer.py" => {
                Self::Step
            }
            ("amp/grad_scaler.py", "scale")
            | ("utils/checkpoint.py" | "nn/functional.py", _) => Self::Forward,
            ("amp/grad_scaler.py" | "nn/utils/clip_grad.py", _) => Self::Optimizer,
            ("autograd/__init__.py", _) => Self::Backward,
            _ if inside.starts_with("optim/") => Self::Optimizer,
            _ if inside.starts_with("utils/data/") => Self::Data,
            _ => Self::Nothing,
        }
    }
}

/// C++ frames of the backward pass and of scratch memory.
fn native(name: &str) -> FrameSign {
    if name.contains("CUDABlasWorkspace") || name.starts_with("at::cuda::getCurrentCUDABlas") {
        FrameSign::Workspace
    } else if name.starts_with("torch::autograd::AccumulateGrad::") {
        FrameSign::Gradient
    } else if name.starts_with("torch::autograd::Engine::") {
        FrameSign::Backward
    } else {
        FrameSign::Nothing
    }
}

/// Frames that are not PyTorch's: what their names are used for everywhere.
fn of_others(file: &str, name: &str) -> FrameSign {
    match name {
        "step" if is_of_an_optimizer(file) => FrameSign::Optimizer,
        "collate" | "collate_fn" => FrameSign::Data,
        "from_pretrained" | "load_state_dict" => FrameSign::Init,
        "__getitem__" => FrameSign::Picks,
        "__init__" => FrameSign::Constructor,
        _ => FrameSign::Nothing,
    }
}

/// By the name of the file, or of its directory: further up may stand the name of a user or a project.
fn is_of_an_optimizer(file: &str) -> bool {
    let mut parts = file.rsplit(['/', '\\']);
    let is_file = parts.next().is_some_and(|name| name.contains("optim") || name.contains("adam"));
    is_file || matches!(parts.next(), Some("optim" | "optimizer" | "optimizers"))
}

/// Reads stacks, each frame judged once.
pub(super) struct SignReader<'a> {
    snapshot: &'a Snapshot,
    marks: Vec<(FrameSign, Origin)>,
    /// Of each frame, whether threads of a program begin there.
    is_top: Vec<bool>,
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
        let is_top = |id: usize| {
            let frame = snapshot.stacks.frame(FrameId::from_index(id));
            matches!(snapshot.text(frame.name), "<module>" | "_bootstrap")
        };
        let is_top = (0..snapshot.stacks.frame_count()).map(is_top).collect();
        Self { snapshot, marks, is_top, bare_is_backward }
    }

    pub(super) fn read(&self, stack: StackId) -> Signs {
        let mut signs = Signs::default();
        let (mut first, mut weak, mut is_backward, mut is_bare) = (None, None, false, true);
        let (mut is_others, mut is_closure, mut is_from_the_top) = (false, false, false);
        for id in self.snapshot.stacks.frames(stack) {
            let (mark, origin) = &self.marks[id.index()];
            is_closure |= *mark == FrameSign::Step && is_others;
            is_others |= matches!(origin, Origin::User | Origin::Package);
            match mark {
                FrameSign::Optimizer | FrameSign::Step if is_closure => {}
                FrameSign::Constructor | FrameSign::Picks => weak = weak.or(mark.phase()),
                _ => first = first.or(mark.phase()),
            }
            if *origin != Origin::Native {
                is_from_the_top = self.is_top[id.index()];
            }
            is_backward |= mark.phase() == Some(Phase::Backward);
            // The threads of the backward pass are C++: what Python they run was called from there.
            is_bare &= *origin == Origin::Torch;
            signs.is_forward |= *mark == FrameSign::Forward;
            signs.makes = signs.makes.or(mark.makes());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(file: &str, name: &str) -> FrameSign {
        FrameSign::of(file, name, Origin::of(file, 7, name))
    }

    #[test]
    fn frames_say_what_they_are_for() {
        let torch = "/venv/lib/python3.12/site-packages/torch";
        let of = |file: &str, name: &str| mark(&format!("{torch}/{file}"), name);
        for (found, wanted) in [
            (of("nn/modules/module.py", "_apply"), FrameSign::Parameter),
            (of("nn/modules/module.py", "_call_impl"), FrameSign::Forward),
            (of("nn/modules/linear.py", "forward"), FrameSign::Forward),
            (of("nn/modules/linear.py", "__init__"), FrameSign::Parameter),
            (of("nn/functional.py", "softmax"), FrameSign::Forward),
            (of("nn/init.py", "kaiming_uniform_"), FrameSign::Parameter),
            (of("_tensor.py", "backward"), FrameSign::Backward),
            (of("autograd/__init__.py", "_make_grads"), FrameSign::Backward),
            (of("autograd/function.py", "apply"), FrameSign::Nothing),
            (of("utils/checkpoint.py", "unpack_hook"), FrameSign::Backward),
            (of("utils/checkpoint.py", "checkpoint"), FrameSign::Forward),
            (of("optim/adam.py", "_init_group"), FrameSign::State),
            (of("optim/adam.py", "_multi_tensor_adam"), FrameSign::Optimizer),
            (of("optim/adam.py", "step"), FrameSign::Step),
            (of("optim/optimizer.py", "step"), FrameSign::Optimizer),
            (of("optim/adagrad.py", "__init__"), FrameSign::StateOfInit),
            (of("amp/grad_scaler.py", "scale"), FrameSign::Forward),
            (of("amp/grad_scaler.py", "_unscale_grads_"), FrameSign::Optimizer),
            (of("utils/data/dataloader.py", "__next__"), FrameSign::Data),
            (of("_ops.py", "__call__"), FrameSign::Nothing),
            (mark("/app/train.py", "train"), FrameSign::Nothing),
            (mark("/app/train.py", "step"), FrameSign::Nothing),
            (mark("/app/optimizer.py", "step"), FrameSign::Optimizer),
            (mark("/app/optim/lion.py", "step"), FrameSign::Optimizer),
            (mark("/home/adam/optimum/train.py", "step"), FrameSign::Nothing),
            (mark("/app/model.py", "__init__"), FrameSign::Constructor),
            (mark("/app/table.py", "__getitem__"), FrameSign::Picks),
            (of("serialization.py", "load"), FrameSign::Constructor),
            (
                mark(r"C:\venv\Lib\site-packages\torch\optim\adam.py", "_init_group"),
                FrameSign::State,
            ),
            (
                mark("??", "torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)"),
                FrameSign::Backward,
            ),
            (
                mark("??", "at::cuda::allocateCUDABlasWorkspace(unsigned long)"),
                FrameSign::Workspace,
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }
}
