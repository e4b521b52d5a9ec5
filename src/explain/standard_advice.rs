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
impl StandardAdvice {
    /// The advice for every failure with this verdict.
    pub fn for_verdict(verdict: Verdict) -> Self {
        let (text, snippet) = match verdict {
            Verdict::MemoryLimit => (
                "Raise or remove the process limit: torch.cuda.set_per_process_memory_fraction(), or \
                 per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks also set it.",
                Snippet::Command("torch.cuda.set_per_process_memory_fraction(1.0)"),
            ),
            Verdict::Spurious => (
                "Retry the request. If max_split_size_mb kept the block for larger requests, remove that setting.",
                Snippet::Nothing,
            ),
            Verdict::PendingFree => {
                ("Synchronize with the other stream before the request, or use record_stream less.", Snippet::CodeLine)
            }
            Verdict::PrivatePool => (
                "Let CUDA graphs share one pool (torch.cuda.graph(pool=...)), capture fewer shapes, and delete graphs \
                 and MemPools that are no longer used.",
                Snippet::CodeLine,
            ),
            Verdict::OtherStream => ("Allocate on fewer streams.", Snippet::CodeLine),
            Verdict::Fragmentation => (
                "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set: it reduces fragmentation. \
                `oomscope whatif` tests it on a snapshot.",
                Snippet::AllocConf(EXPANDABLE_SEGMENTS),
            ),
            Verdict::NonPytorch => (
                "Look for other processes on the GPU (nvidia-smi, while the job runs) and for libraries with \
                their own allocators. A CUDA context takes up to about 1 GiB.",
                Snippet::Command(MONITOR),
            ),
            Verdict::Capacity => (
                "Reduce the live memory: a smaller batch or sequence, activation checkpointing, lower precision, \
                sharding or offloading. A snapshot shows which lines hold the memory.",
                Snippet::CodeLine,
            ),
            Verdict::Growth => ("Free what each step keeps.", Snippet::CodeLine),
            Verdict::Unknown => (
                "Record a snapshot at the failure, with all actions and a recent PyTorch, which records more.",
                Snippet::Nothing,
            ),
            Verdict::Served => ("Nothing.", Snippet::Nothing),
        };
        Self { text, snippet }
    }
}
