//! Advice for every verdict, for both failures in a trace and messages in a log.

use crate::allocator::conf::EXPANDABLE_SEGMENTS;
use crate::allocator::verdict::Verdict;

/// The advice of a verdict that needs no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandardAdvice {
    /// One or two sentences.
    pub text: &'static str,
    /// Text to copy.
    pub snippet: Snippet,
}

/// Text that a page offers to copy with the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snippet {
    /// An option of `PYTORCH_CUDA_ALLOC_CONF`.
    AllocConf(&'static str),
    /// A shell command or a Python call.
    Command(&'static str),
    /// The source line that holds the most memory, or made the request.
    CodeLine,
    /// Nothing.
    Nothing,
}

/// Lists the processes on a device.
const MONITOR: &str = "nvidia-smi";
/// A common attempt that does nothing.
pub(super) const EMPTY_CACHE_NO_REMEDY: &str = "torch.cuda.empty_cache() would not have helped: PyTorch released every free \
                                         segment before the request failed.";
/// Users of device memory in a process, other than the allocator.
pub(super) const OUTSIDE_ALLOCATOR_USERS: &str = "NCCL buffers, cuBLAS workspaces, and libraries with their own allocators \
                                           (RAPIDS, TensorFlow, JAX, DALI)";

impl Verdict {
    /// The standard advice.
    pub fn advice(self) -> StandardAdvice {
        let (text, copy) = match self {
            Self::MemoryLimit => (
                "Raise or remove the process limit: torch.cuda.set_per_process_memory_fraction(), or \
                 per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks also set it.",
                Snippet::Command("torch.cuda.set_per_process_memory_fraction(1.0)"),
            ),
            Self::Spurious => (
                "Retry the request. If max_split_size_mb kept the block for larger requests, remove that setting.",
                Snippet::Nothing,
            ),
            Self::PendingFree => {
                ("Synchronize with the other stream before the request, or use record_stream less.", Snippet::CodeLine)
            }
            Self::PrivatePool => (
                "Let CUDA graphs share one pool (torch.cuda.graph(pool=...)), capture fewer shapes, and delete graphs \
                 and MemPools that are no longer used.",
                Snippet::CodeLine,
            ),
            Self::OtherStream => ("Allocate on fewer streams.", Snippet::CodeLine),
            Self::Fragmentation => (
                "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set: it reduces fragmentation. \
                `oomscope whatif` tests it on a snapshot.",
                Snippet::AllocConf(EXPANDABLE_SEGMENTS),
            ),
            Self::NonPytorch => (
                "Look for other processes on the GPU (nvidia-smi, while the job runs) and for libraries with \
                their own allocators. A CUDA context takes up to about 1 GiB.",
                Snippet::Command(MONITOR),
            ),
            Self::Capacity => (
                "Reduce the live memory: a smaller batch or sequence, activation checkpointing, lower precision, \
                sharding or offloading. A snapshot shows which lines hold the memory.",
                Snippet::CodeLine,
            ),
            Self::Growth => ("Free what each step keeps.", Snippet::CodeLine),
            Self::Unknown => (
                "Record a snapshot at the failure, with all actions and a recent PyTorch, which records more.",
                Snippet::Nothing,
            ),
            Self::Served => ("Nothing.", Snippet::Nothing),
        };
        StandardAdvice { text, snippet: copy }
    }

    /// The text of the standard advice.
    pub fn advice_text(self) -> &'static str {
        self.advice().text
    }
}
