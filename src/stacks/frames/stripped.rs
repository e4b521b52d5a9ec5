//! Paths without the directories that say whose machine it was.

use super::origin::{Origin, slashed};

/// What tells whose code it is: paths go on from there.
const KEPT: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python3"];

/// `file`, code of `origin`, without its directories. Of what is installed the path within the installation stays:
/// it is the same on every machine, and says whose code it is.
pub(super) fn without_directories(file: &str, origin: Origin) -> String {
    let path = slashed(file);
    let inside = match origin {
        Origin::User => None,
        Origin::Torch if !KEPT.iter().any(|part| path.contains(part)) => path.rfind("/torch/"),
        _ => KEPT.iter().find_map(|part| path.rfind(part)),
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
    fn nothing_is_left_of_whose_machine_it_was() {
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
            let origin = Origin::of(file, 7, "f");
            assert_eq!(without_directories(file, origin), shown, "{file}");
        }
    }

    #[test]
    fn whose_code_it_is_can_still_be_told() {
        for file in [
            "/home/me/secret/train.py",
            "/venv/lib/python3.11/site-packages/torch/nn/functional.py",
            "/venv/lib/python3.11/site-packages/vllm/worker.py",
            "/src/pytorch/torch/nn/functional.py",
            "/usr/lib/python3.11/contextlib.py",
        ] {
            let origin = Origin::of(file, 7, "f");
            assert_eq!(Origin::of(&without_directories(file, origin), 7, "f"), origin, "{file}");
        }
    }
}
