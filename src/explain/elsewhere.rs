//! Memory that somebody else than PyTorch's allocator of device memory could not have.

use super::conclusion::Conclusion;
use super::figures::PrintedFigure;
use crate::message::{Elsewhere, PrintedAmount};

/// The word for it in JSON.
pub(super) fn kind(whose: Elsewhere) -> &'static str {
    match whose {
        Elsewhere::Runtime => "cuda-runtime",
        Elsewhere::Driver => "cuda-driver",
        Elsewhere::Nccl => "nccl",
        Elsewhere::Library(_) => "library",
        Elsewhere::AddressSpace => "address-space",
        Elsewhere::Host => "host",
    }
}

const LEAVE_ROOM: &str = "Leave room on the device: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9), so that PyTorch's cache does not take all of it.";
const OTHERS: &str = "nvidia-smi, while the job runs, says how full the device is and whether other processes are on it.";

/// What such a message means. The verdict stays open: none of them has numbers.
pub(super) fn conclude(whose: Elsewhere) -> Conclusion {
    match whose {
        Elsewhere::Runtime => Conclusion::unknown(
            "the CUDA runtime itself found no memory: outside PyTorch's allocator, for a context, a kernel, \
             pinned host memory or a library. The device was full before PyTorch asked for a tensor's memory",
            &[OTHERS, LEAVE_ROOM],
        ),
        Elsewhere::Driver => Conclusion::unknown(
            "the CUDA driver found no memory to map, or none for itself; expandable segments ask it for theirs",
            &[
                OTHERS,
                "Try without expandable_segments: under WSL2 and on some boards its mappings fail with memory free.",
                LEAVE_ROOM,
            ],
        ),
        Elsewhere::Nccl => Conclusion::unknown(
            "NCCL found no device memory for its buffers, which it takes outside PyTorch's allocator; PyTorch \
             may hold free memory in its cache all the while",
            &[
                LEAVE_ROOM,
                "Fewer communicators and channels need less: each process group has buffers of its own (NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE).",
                OTHERS,
            ],
        ),
        Elsewhere::Library(name) => Conclusion::unknown(
            &format!(
                "{name} found no device memory for its handle or workspace, which it takes outside PyTorch's \
                 allocator; PyTorch may hold free memory in its cache all the while. After a failed kernel, an \
                 index out of range for instance, this message appears too"
            ),
            &[
                LEAVE_ROOM,
                OTHERS,
                "Run once with CUDA_LAUNCH_BLOCKING=1: another error may come first.",
            ],
        ),
        Elsewhere::AddressSpace => Conclusion::unknown(
            "addresses, not memory, ran out: each expandable segment reserves more addresses than the device \
             has memory, once a stream, and the process may not have as many (ulimit -v)",
            &[
                "Raise the limit on virtual memory (ulimit -v), use fewer streams, or lower expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF.",
            ],
        ),
        Elsewhere::Host => Conclusion {
            is_certain: true,
            ..Conclusion::unknown(
                "this is the computer's own memory (RAM), not the GPU's: a tensor on the CPU could not be had",
                &[
                    "Use less RAM: fewer or leaner data loader workers, load the model once or with mmap, offload less; or ask the scheduler for more.",
                    "A snapshot of CUDA memory says nothing about it.",
                ],
            )
        },
    }
}

/// The size that a message about the host's memory names.
pub(super) fn figures(whose: Elsewhere, text: &str) -> Vec<PrintedFigure> {
    let requested = (whose == Elsewhere::Host)
        .then(|| text.split_once("you tried to allocate "))
        .flatten()
        .and_then(|(_, rest)| PrintedAmount::at_start(rest));
    let figure = |amount: PrintedAmount| PrintedFigure {
        name: "requested",
        label: "asked for",
        bytes: amount.bytes,
        error_bytes: amount.error_bytes,
        printed: amount.text,
        meaning: "the size of the tensor on the CPU".to_owned(),
    };
    requested.map(figure).into_iter().collect()
}
