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
const OTHERS: &str = "nvidia-smi, while the job runs, shows how full the device is and whether \
                      other processes use it.";

/// What such a message means. The verdict stays open: none of them has numbers.
pub(super) fn conclude(whose: Elsewhere) -> Conclusion {
    match whose {
        Elsewhere::Runtime => Conclusion::unknown(
            "the CUDA runtime itself ran out of memory, outside PyTorch's allocator: for a \
             context, a kernel, pinned host memory or a library. The device was full before \
             PyTorch requested memory for a tensor",
            &[OTHERS, LEAVE_ROOM],
        ),
        Elsewhere::Driver => Conclusion::unknown(
            "the CUDA driver had no memory to map, or none for itself; expandable segments map \
             memory through the driver",
            &[
                OTHERS,
                "Try without expandable_segments: under WSL2 and on some boards its mappings fail \
                 although memory is free.",
                LEAVE_ROOM,
            ],
        ),
        Elsewhere::Nccl => Conclusion::unknown(
            "NCCL found no device memory for its buffers, which it allocates outside PyTorch's \
             allocator; PyTorch's cache may still hold free memory",
            &[
                LEAVE_ROOM,
                "Fewer communicators and channels need less: each process group has buffers of its own (NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE).",
                OTHERS,
            ],
        ),
        Elsewhere::Library(name) => Conclusion::unknown(
            &format!(
                "{name} found no device memory for its handle or workspace, which it allocates \
                 outside PyTorch's allocator; PyTorch's cache may still hold free memory. The \
                 message also appears after a failed kernel, for example an index out of range"
            ),
            &[
                LEAVE_ROOM,
                OTHERS,
                "Run once with CUDA_LAUNCH_BLOCKING=1: another error may come first.",
            ],
        ),
        Elsewhere::AddressSpace => Conclusion::unknown(
            "the process ran out of addresses, not memory: each expandable segment, one per \
             stream, reserves more addresses than the device has memory, and the process may have \
             too few (ulimit -v)",
            &[
                "Raise the limit on virtual memory (ulimit -v), use fewer streams, or lower expandable_segments_reserve in PYTORCH_CUDA_ALLOC_CONF.",
            ],
        ),
        Elsewhere::Host => Conclusion {
            is_certain: true,
            ..Conclusion::unknown(
                "host memory (RAM) ran out, not GPU memory: a CPU tensor could not be allocated",
                &[
                    "Use less RAM: fewer or leaner data loader workers, load the model once or with mmap, offload less; or ask the scheduler for more.",
                    "A snapshot of CUDA memory does not show it.",
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
    let figure = |amount: PrintedAmount| {
        PrintedFigure::said("requested", &amount, "the size of the tensor on the CPU")
    };
    requested.map(figure).into_iter().collect()
}
