//! Every verdict: its word, its question, what to do about it.

use crate::notice::words;

words! {
    /// How sure a verdict is.
    pub enum Certainty {
        /// The numbers decide it
        Certain = "certain",
        /// The numbers allow it, but what is not printed decides
        Possible = "possible",
    }
}

words! {
    /// What would have served a request, in the order of the questions: what is cheapest to change comes first.
    /// The meaning of each is its question.
    #[non_exhaustive]
    pub enum Verdict {
        /// Did the device have room for the segment?
        MemoryLimit = "memory-limit",
        /// Was a free block of the right pool, size class and stream large enough?
        Spurious = "spurious",
        /// Would freed blocks that other streams still use cover it?
        PendingFree = "pending-free",
        /// Would free memory in other pools (CUDA graphs, `MemPool`) cover it?
        PrivatePool = "private-pool",
        /// Would free memory in segments of other streams of the pool cover it?
        OtherStream = "other-stream",
        /// Would the free memory of the request's own pool and stream cover it if it were in one piece?
        Fragmentation = "fragmentation",
        /// Would memory in use outside this allocator cover it? Needs the device's capacity
        NonPytorch = "non-pytorch",
        /// None of these: usually live memory and the request exceed the device
        Capacity = "capacity",
        /// The recording does not answer these questions
        Unknown = "unknown",
        /// The request would not fail (`analyze --request`)
        Served = "served",
    }
}

impl Verdict {
    /// What to do about it, in a sentence or two.
    pub fn advice(self) -> &'static str {
        match self {
            Self::MemoryLimit => {
                "Raise or remove the process limit: torch.cuda.set_per_process_memory_fraction(), \
                 or per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks \
                 also set it."
            }
            Self::Spurious => {
                "Repeat the request. If max_split_size_mb kept the block for larger requests, \
                 remove that setting."
            }
            Self::PendingFree => {
                "Synchronize with the other stream before the request, or use record_stream less."
            }
            Self::PrivatePool => {
                "Let CUDA graphs share one pool (torch.cuda.graph(pool=...)), capture fewer shapes, and drop \
                 graphs and MemPools that are done."
            }
            Self::OtherStream => "Allocate on fewer streams.",
            Self::Fragmentation => {
                "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless already set: it \
                 leaves fewer pieces. `oomscope whatif` tests it on a snapshot."
            }
            Self::NonPytorch => {
                "Look for other processes on the GPU (nvidia-smi, while the job runs) and for libraries with \
                 allocators of their own. A CUDA context takes up to about 1 GiB."
            }
            Self::Capacity => {
                "Hold less at that moment: a smaller batch or sequence, activation checkpointing, \
                 lower precision, sharding or offloading. A snapshot shows which lines hold the \
                 memory."
            }
            Self::Unknown => {
                "Record a snapshot at the failure, with all actions and a recent PyTorch, which \
                 records more."
            }
            Self::Served => "Nothing.",
        }
    }
}
