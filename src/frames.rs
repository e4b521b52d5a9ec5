//! Which frames of a stack are the user's own code, and which only carry the call.

use std::sync::{Arc, OnceLock};

use serde::Serialize;

use crate::ids::{FrameId, StackId};
use crate::snapshot::Snapshot;
use crate::units::plain;

/// One frame, for people and JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FrameReport {
    /// File name as recorded; characters that a terminal could act on are escaped, here and in `name`.
    pub file: String,
    /// Line number; 0 when there is none. In a shared library, an offset.
    pub line: u32,
    /// Function name.
    pub name: String,
}

/// Frames of one stack, innermost first. Shared: many blocks and failures have the same stack.
pub type FrameList = Arc<[FrameReport]>;

/// Whose code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user's own.
    User,
    /// An installed package other than PyTorch.
    Package,
    /// PyTorch's Python code.
    Torch,
    /// Frames that only pass the call on: `Module._call_impl`, the standard library, generated code.
    Plumbing,
    /// C and C++: kernels, dispatcher, interpreter.
    Native,
}

/// Parts of a path that only PyTorch's own sources have, for builds from source.
const TORCH_SOURCES: [&str; 12] = [
    "/torch/_",
    "/torch/nn/",
    "/torch/optim/",
    "/torch/autograd/",
    "/torch/utils/",
    "/torch/distributed/",
    "/torch/cuda/",
    "/torch/fx/",
    "/torch/jit/",
    "/torch/amp/",
    "/torch/functional.py",
    "/torch/serialization.py",
];

/// Endings of what a C, C++ or assembler frame calls its file, in the letters that compilers use.
const NATIVE_ENDINGS: [&str; 12] =
    [".so", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cu", ".cuh", ".dylib", ".S", ".s"];

fn is_native(file: &str, name: &str) -> bool {
    file.is_empty()
        || file == "??"
        || file.contains(".so.")
        || NATIVE_ENDINGS.iter().any(|ending| file.ends_with(ending))
        || matches!(name, "??" | "_start")
}

fn is_standard_library(file: &str) -> bool {
    let Some((_, rest)) = file.split_once("/lib/python3") else { return false };
    !rest.contains("-packages/")
}

/// Code that was written by a program: `TorchInductor`, exec, frozen modules.
fn is_generated(file: &str) -> bool {
    file.starts_with('<')
        || file.contains("torchinductor_")
        || file.contains("/torch_compile_debug/")
}

impl Origin {
    /// Whose code is at `file` and `name`?
    pub fn of(file: &str, name: &str) -> Self {
        if is_native(file, name) {
            return Self::Native;
        }
        if is_generated(file) || is_standard_library(file) {
            return Self::Plumbing;
        }
        let package =
            ["/site-packages/", "/dist-packages/"].iter().find_map(|dir| file.split_once(dir));
        let is_torch = match package {
            Some((_, inside)) => inside.starts_with("torch/"),
            None => TORCH_SOURCES.iter().any(|part| file.contains(part)),
        };
        match (is_torch, package) {
            (true, _) if matches!(name, "_call_impl" | "_wrapped_call_impl") => Self::Plumbing,
            (true, _) => Self::Torch,
            (false, Some(_)) => Self::Package,
            (false, None) => Self::User,
        }
    }
}

/// The operator that a C++ frame runs: `aten::bmm` of `at::_ops::bmm::call(...)`, `BmmBackward0` of
/// `torch::autograd::generated::BmmBackward0::apply(...)`.
fn operator(name: &str) -> Option<String> {
    [("at::_ops::", "aten::"), ("torch::autograd::generated::", "")].iter().find_map(
        |(prefix, shown)| {
            let (op, _) = name.strip_prefix(prefix)?.split_once("::")?;
            Some(plain(&format!("{shown}{op}")))
        },
    )
}

impl FrameReport {
    /// Whose code it is.
    pub fn origin(&self) -> Origin {
        Origin::of(&self.file, &self.name)
    }
}

/// Reads stacks of one snapshot, each frame judged once.
#[derive(Debug)]
pub struct StackReader<'a> {
    snapshot: &'a Snapshot,
    origins: Vec<Origin>,
    /// Of each stack, once it was asked for.
    whole: Vec<OnceLock<FrameList>>,
}

impl<'a> StackReader<'a> {
    /// Judges every frame of `snapshot`.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let origin = |id: usize| {
            let frame = snapshot.stacks.frame(FrameId::from_index(id));
            Origin::of(snapshot.text(frame.file), snapshot.text(frame.name))
        };
        let origins = (0..snapshot.stacks.frame_count()).map(origin).collect();
        let whole = vec![OnceLock::new(); snapshot.stacks.len()];
        Self { snapshot, origins, whole }
    }

    /// Whose code frame `id` is.
    pub(crate) fn origin(&self, id: FrameId) -> Origin {
        self.origins[id.index()]
    }

    fn report(&self, id: FrameId) -> FrameReport {
        let frame = self.snapshot.stacks.frame(id);
        FrameReport {
            file: plain(self.snapshot.text(frame.file)),
            line: frame.line,
            name: plain(self.snapshot.text(frame.name)),
        }
    }

    /// The whole stack, innermost first.
    pub fn whole(&self, stack: StackId) -> FrameList {
        let read = || -> FrameList {
            let ids = self.snapshot.stacks.frames(stack).iter();
            ids.map(|id| self.report(*id)).collect()
        };
        Arc::clone(self.whole[stack.index()].get_or_init(read))
    }

    /// The innermost frame of the user's own code; failing that, of an installed package other than
    /// PyTorch (a training program may be one).
    pub fn culprit(&self, stack: StackId) -> Option<FrameReport> {
        self.culprit_id(stack).map(|id| self.report(id))
    }

    /// See [`StackReader::culprit`].
    pub fn culprit_id(&self, stack: StackId) -> Option<FrameId> {
        let ids = self.snapshot.stacks.frames(stack);
        [Origin::User, Origin::Package]
            .iter()
            .find_map(|wanted| ids.iter().copied().find(|id| self.origin(*id) == *wanted))
    }

    /// What was being done: the operators that C++ frames name, outermost first (`BmmBackward0 >
    /// aten::bmm`), else the innermost frame of PyTorch's Python code.
    pub fn operation(&self, stack: StackId) -> Option<String> {
        let mut operators: Vec<String> = Vec::new();
        for id in self.snapshot.stacks.frames(stack) {
            let frame = self.snapshot.stacks.frame(*id);
            match self.origin(*id) {
                Origin::Native => {
                    if let Some(op) = operator(self.snapshot.text(frame.name))
                        && operators.last() != Some(&op)
                    {
                        operators.push(op);
                    }
                }
                Origin::Torch if operators.is_empty() => {
                    let file = self.snapshot.text(frame.file);
                    let short = file.rsplit_once("/torch/").map_or(file, |(_, inside)| inside);
                    let name = self.snapshot.text(frame.name);
                    return Some(plain(&format!("torch/{short}:{} {name}", frame.line)));
                }
                Origin::Plumbing => {}
                _ => break,
            }
        }
        // Redispatch repeats operators; the innermost and the outermost tell.
        match operators.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            [inner, .., outer] => Some(format!("{outer} > {inner}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        let cases = [
            ("/app/train.py", "step", Origin::User),
            ("train.py", "<module>", Origin::User),
            ("/home/me/torch/train.py", "main", Origin::User),
            ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", "linear", Origin::Torch),
            (
                "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
                "_call_impl",
                Origin::Plumbing,
            ),
            ("/src/pytorch/torch/nn/functional.py", "linear", Origin::Torch),
            (
                "/venv/lib/python3.11/site-packages/transformers/models/x.py",
                "forward",
                Origin::Package,
            ),
            ("/venv/lib/python3.11/site-packages/torchvision/ops.py", "nms", Origin::Package),
            ("/usr/lib/python3.11/contextlib.py", "decorate_context", Origin::Plumbing),
            ("<string>", "run", Origin::Plumbing),
            ("/tmp/torchinductor_me/ab/cab.py", "call", Origin::Plumbing),
            ("??", "at::_ops::bmm::call(at::Tensor const&)", Origin::Native),
            ("/usr/lib/libpython3.11.so.1.0", "_PyEval_EvalFrameDefault", Origin::Native),
            ("/usr/bin/python3.11", "_start", Origin::Native),
            ("", "PyEval_EvalCode", Origin::Native),
            ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", "clone3", Origin::Native),
        ];
        for (file, name, origin) in cases {
            assert_eq!(Origin::of(file, name), origin, "{file} {name}");
        }
    }

    #[test]
    fn operators_are_named_shortly() {
        assert_eq!(
            operator("at::_ops::bmm::redispatch(c10::DispatchKeySet)").unwrap(),
            "aten::bmm"
        );
        assert_eq!(
            operator("torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)")
                .unwrap(),
            "BmmBackward0"
        );
        assert_eq!(operator("c10::Dispatcher::call"), None);
    }
}
