//! Removes directories from paths, because they identify a user or a machine.

use super::origin::{Origin, forward_slashes};

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
