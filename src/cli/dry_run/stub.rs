//! The stub of CUDA and what brings it into a program, as text.

/// Their places beside the recorder, and what is in them.
pub(super) const FILES: &[(&str, &str)] = &[
    ("_oomscope_dry_run.py", include_str!("../../../python/oomscope/_dry_run.py")),
    ("_oomscope_ending.py", include_str!("../../../python/oomscope/_ending.py")),
    ("_oomscope_files.py", include_str!("../../../python/oomscope/_files.py")),
    ("_oomscope_ranks.py", include_str!("../../../python/oomscope/_ranks.py")),
    ("_oomscope_retries.py", include_str!("../../../python/oomscope/_retries.py")),
    ("_oomscope_stub.py", include_str!("../../../python/oomscope/_stub.py")),
    ("_oomscope_usage.py", include_str!("../../../python/oomscope/_usage.py")),
    ("_oomscope_values.py", include_str!("../../../python/oomscope/_values.py")),
    ("stub/stub.c", include_str!("../../../stub/stub.c")),
    ("stub/allocation.c", include_str!("../../../stub/allocation.c")),
    ("stub/blas.c", include_str!("../../../stub/blas.c")),
    ("stub/copies.c", include_str!("../../../stub/copies.c")),
    ("stub/devices.c", include_str!("../../../stub/devices.c")),
    ("stub/dnn.c", include_str!("../../../stub/dnn.c")),
    ("stub/kernels.c", include_str!("../../../stub/kernels.c")),
    ("stub/ledger.c", include_str!("../../../stub/ledger.c")),
    ("stub/lookup.c", include_str!("../../../stub/lookup.c")),
    ("stub/memory.c", include_str!("../../../stub/memory.c")),
    ("stub/nccl.c", include_str!("../../../stub/nccl.c")),
    ("stub/nvml.c", include_str!("../../../stub/nvml.c")),
    ("stub/rnn.c", include_str!("../../../stub/rnn.c")),
    ("stub/streams.c", include_str!("../../../stub/streams.c")),
    ("stub/workspaces.c", include_str!("../../../stub/workspaces.c")),
];
