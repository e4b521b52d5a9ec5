//! The stub of CUDA and what brings it into a program, as text.

use crate::cli::run::files;

pub(super) const PYTHON: &[(&str, &str)] = files! {
    "_oomscope_", "python/oomscope/_", ".py",
    "dry_run" "draws" "children" "ending" "files" "kernels" "generation" "observed" "operators" "ranks" "serving" "sglang"
    "shadow" "stub" "triton" "usage" "values" "vllm"
};

pub(super) const C: &[(&str, &str)] = files! {
    "stub/", "stub/", ".c",
    "stub" "allocation" "blas" "convolutions" "copies" "devices" "dnn" "fft" "kernels" "ledger" "lookup" "memory" "nccl"
    "nvml" "operators" "rnn" "solvers" "streams" "workspaces"
};
