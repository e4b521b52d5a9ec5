//! What to do about every verdict: the one table that a failure in a trace and a message in a log are answered from.

use super::kinds::Verdict;

/// What to do, and what to copy for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// A sentence or two.
    pub text: &'static str,
    /// What helps to do it.
    pub snippet: Snippet,
}

/// What there is to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Snippet {
    /// An option of `PYTORCH_CUDA_ALLOC_CONF`.
    AllocConf(&'static str),
    /// A command or a call.
    Command(&'static str),
    /// The line of code that holds most, or asked for it.
    CodeLine,
    /// Nothing.
    Nothing,
}

/// The option that leaves the fewest pieces.
pub const EXPANDABLE_SEGMENTS: &str = "expandable_segments:True";
/// What lists the processes on a device.
pub const MONITOR: &str = "nvidia-smi";
/// Why the obvious call is no remedy.
pub const EMPTY_CACHE_NO_REMEDY: &str = "torch.cuda.empty_cache() would not have helped: PyTorch gave back every whole free \
                               segment before the request failed.";
/// Who holds memory of a process outside the allocator.
pub const OUTSIDE_ALLOCATOR_USERS: &str = "NCCL buffers, cuBLAS workspaces, and libraries with allocators of their own (RAPIDS, \
                               TensorFlow, JAX, DALI)";

impl Verdict {
    /// The row of a verdict.
    pub fn advice(self) -> Advice {
        let (text, copy) = match self {
            Self::MemoryLimit => (
                "Raise or remove the process limit: torch.cuda.set_per_process_memory_fraction(), or \
                 per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks also set it.",
                Snippet::Command("torch.cuda.set_per_process_memory_fraction(1.0)"),
            ),
            Self::Spurious => (
                "Repeat the request. If max_split_size_mb kept the block for larger requests, remove that setting.",
                Snippet::Nothing,
            ),
            Self::PendingFree => (
                "Synchronize with the other stream before the request, or use record_stream less.",
                Snippet::CodeLine,
            ),
            Self::PrivatePool => (
                "Let CUDA graphs share one pool (torch.cuda.graph(pool=...)), capture fewer shapes, and drop graphs \
                 and MemPools that are done.",
                Snippet::CodeLine,
            ),
            Self::OtherStream => ("Allocate on fewer streams.", Snippet::CodeLine),
            Self::Fragmentation => (
                "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set: it leaves fewer pieces. \
                 `oomscope whatif` tests it on a snapshot.",
                Snippet::AllocConf(EXPANDABLE_SEGMENTS),
            ),
            Self::NonPytorch => (
                "Look for other processes on the GPU (nvidia-smi, while the job runs) and for libraries with \
                 allocators of their own. A CUDA context takes up to about 1 GiB.",
                Snippet::Command(MONITOR),
            ),
            Self::Capacity => (
                "Hold less at that moment: a smaller batch or sequence, activation checkpointing, lower precision, \
                 sharding or offloading. A snapshot shows which lines hold the memory.",
                Snippet::CodeLine,
            ),
            Self::Unknown => (
                "Record a snapshot at the failure, with all actions and a recent PyTorch, which records more.",
                Snippet::Nothing,
            ),
            Self::Served => ("Nothing.", Snippet::Nothing),
        };
        Advice { text, snippet: copy }
    }

    /// What to do about it, in a sentence or two.
    pub fn advice_text(self) -> &'static str {
        self.advice().text
    }
}
