//! Whose code a frame is: the user's, an installed package's, PyTorch's, or code that nobody edits.
//!
//! Accepts paths of Linux, macOS and Windows.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::base::units::is_number;

/// Whose code a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The program itself.
    User,
    /// An installed package other than PyTorch.
    Package,
    /// Python code of PyTorch.
    Torch,
    /// Frames that only forward the call: `Module._call_impl`, the standard library, generated code.
    Plumbing,
    /// Not Python source: C++ sources, object files, libraries, the interpreter.
    Native,
}

/// Path components that occur only in PyTorch's sources, for builds from source.
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

/// Prefixes of the file names of code typed into a notebook or prompt: `IPython`, Databricks, Python.
const INTERACTIVE_FILES: [&str; 5] = ["<ipython-input", "Cell In[", "<command-", "<stdin>", "<console>"];

/// Directories of installed packages; the last one holds code that comes with a model of Hugging Face's hub.
const PACKAGE_DIRS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/transformers_modules/"];

/// Files of our recorder, which replace functions of Python and PyTorch in a dry run.
const RECORDER_FILES: &str = "/.recorder/_oomscope";

impl Origin {
    /// Classifies the code at `line` of `file`, in function `name`.
    pub fn classify(file: &str, line: u32, name: &str) -> Self {
        let file = forward_slashes(file);
        let file = file.as_ref();
        if INTERACTIVE_FILES.iter().any(|cell| file.starts_with(cell)) {
            return Self::User;
        }
        if is_generated(file) || file.contains(RECORDER_FILES) {
            return Self::Plumbing;
        }
        if !is_python_source(file, line, name) {
            return Self::Native;
        }
        let package = PACKAGE_DIRS.iter().find_map(|dir| file.split_once(dir));
        let is_torch = match package {
            Some((_, inside)) => inside.starts_with("torch/"),
            None => TORCH_SOURCES.iter().any(|part| file.contains(part)),
        };
        match (is_torch, package) {
            (true, _) if matches!(name, "_call_impl" | "_wrapped_call_impl") => Self::Plumbing,
            (true, _) => Self::Torch,
            (false, Some(_)) => Self::Package,
            (false, None) if is_in_python_install(file) => Self::Plumbing,
            (false, None) => Self::User,
        }
    }
}

/// Directories of installed code that the frames of a recording show by themselves, whatever their names.
#[derive(Debug, Default)]
pub(super) struct InstalledCode {
    /// With PyTorch among them.
    torch: BTreeSet<String>,
    packages: BTreeSet<String>,
    library: BTreeSet<String>,
}

/// The file and function of PyTorch through which each recorded module is called.
const MODULE_CALL: (&str, &str) = ("/torch/nn/modules/module.py", "_call_impl");
/// Functions of the standard library that start threads and modules.
const STARTS: [(&str, &str); 3] =
    [("/threading.py", "_bootstrap_inner"), ("/runpy.py", "_run_code"), ("/runpy.py", "_run_module_as_main")];

impl InstalledCode {
    /// `frames` are the files and functions of a recording.
    pub(super) fn from_frames<'f>(frames: impl Iterator<Item = (&'f str, &'f str)>) -> Self {
        let mut found = Self::default();
        let mut entries: Vec<String> = Vec::new();
        for (file, name) in frames {
            let file = forward_slashes(file);
            let known = [MODULE_CALL].into_iter().chain(STARTS).find_map(|function @ (end, known_name)| {
                let directory = file.strip_suffix(end).filter(|_| name == known_name)?;
                Some((function, format!("{directory}/")))
            });
            if let Some((function, directory)) = known {
                if function == MODULE_CALL { &mut found.packages } else { &mut found.library }.insert(directory);
            } else if name == "<module>" {
                entries.push(file.into_owned());
            }
        }
        // PyTorch's own source tree may have the program in it, too.
        entries.retain(|file| Origin::classify(file, 1, "<module>") == Origin::User);
        found.torch.clone_from(&found.packages);
        found.packages.retain(|directory| !entries.iter().any(|file| file.starts_with(directory.as_str())));
        found
    }

    /// [`Origin::classify`], with these directories.
    pub(super) fn classify(&self, file: &str, line: u32, name: &str) -> Origin {
        let origin = Origin::classify(file, line, name);
        let file = forward_slashes(file);
        match origin {
            // A directory of the program may be called `torch`, too.
            Origin::Torch if self.torch.is_empty() || is_below(&self.torch, &file) || is_packaged(&file) => origin,
            Origin::Package | Origin::Plumbing | Origin::Native => origin,
            _ if is_below(&self.packages, &file) => Origin::Package,
            _ if is_below(&self.library, &file) => Origin::Plumbing,
            _ => Origin::User,
        }
    }
}

fn is_below(directories: &BTreeSet<String>, file: &str) -> bool {
    directories.iter().any(|directory| file.starts_with(directory.as_str()))
}

fn is_packaged(file: &str) -> bool {
    PACKAGE_DIRS.iter().any(|dir| file.contains(dir))
}

/// The name of the package that `file` belongs to: `einops` for `/venv/lib/python3.12/site-packages/einops/einops.py`.
pub(super) fn package_name(file: &str) -> Option<&str> {
    PACKAGE_DIRS.iter().find_map(|dir| {
        // The directory with either separator.
        let dir = dir.trim_matches('/');
        let at = file.match_indices(dir).find_map(|(at, _)| file.get(at + dir.len()..))?;
        at.strip_prefix(['/', '\\'])?.split(['/', '\\']).next()
    })
}

/// Packages that only start programs: command lines, notebooks, workers.
const COMMAND_LINES: [&str; 6] = ["absl", "click", "fire", "hydra", "typer", "tyro"];
const NOTEBOOKS: [&str; 5] = ["IPython", "debugpy", "ipykernel", "tornado", "traitlets"];
const WORKERS: [&str; 4] = ["accelerate", "joblib", "ray", "uvicorn"];

pub(super) fn is_launcher(package: &str) -> bool {
    COMMAND_LINES.contains(&package) || NOTEBOOKS.contains(&package) || WORKERS.contains(&package)
}

/// `file` with `\` replaced by `/`.
pub fn forward_slashes(file: &str) -> Cow<'_, str> {
    if file.contains('\\') { file.replace('\\', "/").into() } else { file.into() }
}

/// Code generated at run time: `TorchInductor`, FX graphs, `exec`, frozen modules.
fn is_generated(file: &str) -> bool {
    file.starts_with('<')
        || file.contains("torchinductor_")
        || file.contains("fx_generated_")
        || file.contains("/torch_compile_debug/")
        // AOTAutograd names its files `codegen.py:codegen(compiled_function_forward)`.
        || file.contains(".py:")
}

/// A script without a file extension counts as Python source if the frame has a line number. C++ frames without an
/// extension have line 0, or an offset into an executable.
fn is_python_source(file: &str, line: u32, name: &str) -> bool {
    let (directory, base) = file.rsplit_once('/').unwrap_or(("", file));
    match base.rsplit_once('.') {
        Some((_, "py" | "pyw" | "pyx" | "ipynb")) => true,
        Some(_) => false,
        None => {
            let is_program = directory.ends_with("/bin") || directory.ends_with("/Scripts");
            line > 0 && !is_program && !base.is_empty() && !name.contains(['(', ':'])
        }
    }
}

/// Whether `file` belongs to the standard library, which Python installs as `lib/python3.11`, or as `Lib` on Windows.
fn is_in_python_install(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    let Some((_, directories)) = parts.split_last() else { return false };
    directories.iter().enumerate().any(|(at, directory)| match directories.get(at + 1) {
        _ if is_python_zip(directory) => true,
        _ if is_windows(file) => directory.eq_ignore_ascii_case("lib") && is_python_home(&directories[..at]),
        Some(version) => matches!(*directory, "lib" | "lib64") && is_versioned(version),
        None => false,
    })
}

/// Whether `file` has a drive or a server.
fn is_windows(file: &str) -> bool {
    file.get(1..3) == Some(":/") || file.starts_with("//")
}

/// `python3.11`, and `python3.13t` without the interpreter lock.
fn is_versioned(name: &str) -> bool {
    let version = name.strip_prefix("python").map(|version| version.strip_suffix('t').unwrap_or(version));
    let numbers = version.and_then(|version| version.split_once('.'));
    numbers.is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// `python310.zip` of the embeddable Windows distribution.
fn is_python_zip(part: &str) -> bool {
    part.strip_suffix(".zip").is_some_and(|name| name.starts_with("python3"))
}

/// Whether the directory with these parts is a Python installation on Windows: `Python310`,
/// `cpython-3.10.19-windows-x86_64-none`, `miniconda3`, or an environment in one.
fn is_python_home(parts: &[&str]) -> bool {
    let [rest @ .., home] = parts else { return false };
    let home = home.to_ascii_lowercase();
    home.strip_prefix("python").is_some_and(is_version)
        || home.starts_with("cpython-3")
        || is_conda(&home)
        || matches!(rest, [.., conda, "envs"] if is_conda(&conda.to_ascii_lowercase()))
}

/// A directory such as `miniconda3`.
fn is_conda(name: &str) -> bool {
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name.ends_with("conda") || matches!(name, "miniforge" | "mambaforge")
}

/// A directory such as `3.12`.
fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit()) && version.bytes().all(|byte| !byte.is_ascii_lowercase())
}

/// Stripped paths start at one of these directories, which are the same on every machine.
const KEPT_DIRS: [&str; 4] = ["/site-packages/", "/dist-packages/", "/transformers_modules/", "/lib/python3"];

/// Strips the directories of `file`, which contains code of `origin`. Installed code keeps its path within the
/// installation, so that [`Origin::classify`] still gives `origin`.
pub(super) fn strip_directories(file: &str, origin: Origin) -> String {
    let path = forward_slashes(file);
    let inside = match origin {
        Origin::User => None,
        Origin::Torch if !KEPT_DIRS.iter().any(|part| path.contains(part)) => path.rfind("/torch/"),
        _ => KEPT_DIRS.iter().find_map(|part| path.rfind(part)),
    };
    match inside.and_then(|at| path.get(at..)) {
        Some(inside) => format!("..{inside}"),
        None => path.rsplit('/').next().unwrap_or(&path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(file: &str, name: &str) -> Origin {
        Origin::classify(file, 7, name)
    }

    #[test]
    fn classifies_python_frames() {
        let torch = "/venv/lib/python3.11/site-packages/torch";
        let cases = [
            ("/app/train.py", "step", Origin::User),
            ("train.py", "<module>", Origin::User),
            ("/home/me/torch/train.py", "main", Origin::User),
            ("/home/me/lib/train.py", "main", Origin::User),
            ("/home/me/run_training", "main", Origin::User),
            ("/tmp/ipykernel_9/12.py", "<module>", Origin::User),
            ("<ipython-input-3-ab12>", "<module>", Origin::User),
            ("<stdin>", "<module>", Origin::User),
            ("Cell In[3]", "<module>", Origin::User),
            ("/src/pytorch/torch/nn/functional.py", "linear", Origin::Torch),
            ("/opt/py/site-packages/transformers/models/x.py", "forward", Origin::Package),
            ("/home/me/oomscope-dry-run-1/.recorder/_oomscope/_files.py", "wrapper", Origin::Plumbing),
            ("/home/me/.recorder/train.py", "main", Origin::User),
            ("/opt/py/dist-packages/vllm/worker.py", "run", Origin::Package),
            ("/opt/py/site-packages/torchvision/ops.py", "nms", Origin::Package),
            ("/root/.cache/huggingface/modules/transformers_modules/m/x/modeling_m.py", "forward", Origin::Package),
            ("/usr/lib/python3.11/contextlib.py", "decorate_context", Origin::Plumbing),
            ("/usr/lib64/python3.9/runpy.py", "_run_code", Origin::Plumbing),
            ("/opt/py/lib/python3.13t/asyncio/base_events.py", "run", Origin::Plumbing),
            ("/usr/lib/python311.zip/copy.py", "deepcopy", Origin::Plumbing),
            // Directories of users with names of installations.
            ("/home/me/rl/envs/atari/lib/net.py", "build", Origin::User),
            ("/home/me/python3-trainer/lib/net.py", "build", Origin::User),
            ("/home/me/python3.11/lib/net.py", "build", Origin::User),
            ("/home/me/anaconda-course/lib/net.py", "build", Origin::User),
            ("/home/me/miniconda3/lib/net.py", "build", Origin::User),
            ("/repo/lib/python3/net.py", "build", Origin::User),
            ("/repo/lib/python3-tools/net.py", "build", Origin::User),
            ("/home/me/my-packages/net.py", "build", Origin::User),
            ("<string>", "run", Origin::Plumbing),
            ("<frozen runpy>", "_run_code", Origin::Plumbing),
            ("/tmp/torchinductor_me/ab/cab.py", "call", Origin::Plumbing),
            ("fx_generated__bpqfktg5b4.py", "forward", Origin::Plumbing),
            ("/venv/bin/torchrun", "<module>", Origin::Native),
        ];
        for (file, name, origin) in cases {
            assert_eq!(classify(file, name), origin, "{file} {name}");
        }
        assert_eq!(classify(&format!("{torch}/nn/functional.py"), "linear"), Origin::Torch);
        assert_eq!(classify(&format!("{torch}/nn/modules/module.py"), "_call_impl"), Origin::Plumbing);
        let codegen = format!("{torch}/_functorch/codegen.py:codegen(compiled_function_forward)");
        assert_eq!(classify(&codegen, "inner"), Origin::Plumbing);
    }

    #[test]
    fn frames_show_where_installed_code_is() {
        let frames = [
            ("/opt/job/deps/torch/nn/modules/module.py", "_call_impl"),
            ("/opt/py/threading.py", "_bootstrap_inner"),
            ("/app/train.py", "<module>"),
        ];
        let installed = InstalledCode::from_frames(frames.into_iter());
        for (file, origin) in [
            ("/opt/job/deps/timm/models/vit.py", Origin::Package),
            ("/opt/py/concurrent/futures/thread.py", Origin::Plumbing),
            ("/opt/job/model.py", Origin::User),
            ("/app/train.py", Origin::User),
            ("/app/torch/optim/train.py", Origin::User),
            ("/opt/job/deps/torch/optim/adam.py", Origin::Torch),
            ("/opt/py/site-packages/torch/optim/adam.py", Origin::Torch),
        ] {
            assert_eq!(installed.classify(file, 7, "run"), origin, "{file}");
        }
        // A program inside PyTorch's source tree.
        let program = [frames[0], ("/opt/job/deps/examples/train.py", "<module>")];
        let installed = InstalledCode::from_frames(program.into_iter());
        assert_eq!(installed.classify("/opt/job/deps/examples/net.py", 7, "run"), Origin::User);
    }

    #[test]
    fn finds_the_name_of_a_package() {
        for (file, name) in [
            ("/venv/lib/python3.11/site-packages/einops/_backends.py", Some("einops")),
            ("/usr/local/lib/python3.10/dist-packages/vllm/worker/worker.py", Some("vllm")),
            (r"C:\FL\.venv\Lib\site-packages\einops\einops.py", Some("einops")),
            ("/root/.cache/huggingface/modules/transformers_modules/m/modeling_m.py", Some("m")),
            ("/home/me/train.py", None),
        ] {
            assert_eq!(package_name(file), name, "{file}");
        }
    }

    #[test]
    fn everything_but_python_source_is_native() {
        for (file, line, name) in [
            ("??", 0, "at::_ops::bmm::call(at::Tensor const&)"),
            ("thread48.o", 0, "execute_native_thread_routine"),
            ("crtstuff.c", 0, "_start"),
            ("", 0, "torch::autograd::Node::operator()"),
            ("", 0, "PyEval_EvalCode"),
            ("/usr/lib/libpython3.11.so.1.0", 0, "_PyEval_EvalFrameDefault"),
            ("/usr/lib/libc10_cuda.dylib", 4711, "c10::cuda::alloc"),
            (r"C:\torch\lib\torch_cuda.dll", 99, "at::native::bmm"),
            ("/usr/bin/python3.11", 9, "_start"),
            ("/usr/bin/python3", 4711, "Py_BytesMain"),
            ("/usr/src/worker", 88, "ray::core::Worker::Run()"),
            ("./misc/../sysdeps/unix/sysv/linux/x86_64/clone3.S", 78, "clone3"),
            ("/croot/work/build-static/Python/bytecodes.c", 3263, "_PyEval_EvalFrameDefault"),
            ("/build/Python/generated_cases.c.h", 9, "_PyEval_EvalFrameDefault"),
            ("tmpxft_0000_Indexing.compute_90.cudafe1.cpp", 0, "__sti____cudaRegisterAll()"),
        ] {
            assert_eq!(Origin::classify(file, line, name), Origin::Native, "{file} {name}");
        }
    }

    #[test]
    fn accepts_windows_paths() {
        for (file, origin) in [
            (r"C:\research\FL\client.py", Origin::User),
            (r"D:\work\lib\model.py", Origin::User),
            (r"D:\rl\envs\atari\lib\net.py", Origin::User),
            (r"D:\python3-trainer\lib\net.py", Origin::User),
            (r"D:\anaconda-course\lib\net.py", Origin::User),
            (r"D:\lib\python3\net.py", Origin::User),
            (r"\\server\share\train.py", Origin::User),
            (r"C:\FL\.venv\lib\site-packages\torch\storage.py", Origin::Torch),
            (r"C:\FL\.venv\Lib\site-packages\einops\einops.py", Origin::Package),
            (r"C:\src\pytorch\torch\nn\functional.py", Origin::Torch),
            (r"C:\uv\cpython-3.10.19-windows-x86_64-none\lib\copy.py", Origin::Plumbing),
            (r"C:\Users\me\AppData\Programs\Python\Python310\Lib\runpy.py", Origin::Plumbing),
            (r"C:\Users\me\anaconda3\lib\threading.py", Origin::Plumbing),
            (r"C:\conda\envs\cs336\lib\threading.py", Origin::Plumbing),
            (r"C:\ComfyUI\python_embeded\python310.zip\copy.py", Origin::Plumbing),
        ] {
            assert_eq!(classify(file, "f"), origin, "{file}");
        }
        let call = r"C:\x\Lib\site-packages\torch\nn\modules\module.py";
        assert_eq!(classify(call, "_call_impl"), Origin::Plumbing);
    }

    #[test]
    fn removes_everything_that_identifies_the_machine() {
        for (file, shown) in [
            ("/home/me/secret/train.py", "train.py"),
            (r"C:\Users\me\secret\train.py", "train.py"),
            ("train.py", "train.py"),
            ("??", "??"),
            ("", ""),
            (
                "/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
                "../site-packages/torch/nn/modules/linear.py",
            ),
            (r"C:\me\Lib\site-packages\einops\einops.py", "../site-packages/einops/einops.py"),
            ("/home/me/src/pytorch/torch/nn/functional.py", "../torch/nn/functional.py"),
            ("/home/me/conda/lib/python3.11/threading.py", "../lib/python3.11/threading.py"),
            ("/tmp/torchinductor_me/ab/cab.py", "cab.py"),
            ("/home/me/app/libfoo.so", "libfoo.so"),
        ] {
            let origin = Origin::classify(file, 7, "f");
            assert_eq!(strip_directories(file, origin), shown, "{file}");
        }
    }

    #[test]
    fn stripping_keeps_the_origin() {
        for file in [
            "/home/me/secret/train.py",
            "/venv/lib/python3.11/site-packages/torch/nn/functional.py",
            "/venv/lib/python3.11/site-packages/vllm/worker.py",
            "/home/me/.cache/huggingface/modules/transformers_modules/m/modeling_m.py",
            "/src/pytorch/torch/nn/functional.py",
            "/usr/lib/python3.11/contextlib.py",
        ] {
            let origin = Origin::classify(file, 7, "f");
            assert_eq!(Origin::classify(&strip_directories(file, origin), 7, "f"), origin, "{file}");
        }
    }
}
