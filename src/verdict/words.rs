//! Every verdict: its word, its question, what to do about it.

use crate::notice::words;

words! {
    /// How sure a verdict is.
    pub enum Certainty {
        /// The numbers decide it
        Certain = "certain",
        /// The numbers allow it, and something unprinted decides
        Possible = "possible",
    }
}

words! {
    /// What would have served a request, in the order in which it is asked for: what is asked first is what is
    /// cheapest to change. The meaning of each is its question.
    #[non_exhaustive]
    pub enum Verdict {
        /// Did the device have room for the segment all the same?
        MemoryLimit = "memory-limit",
        /// Was there a free block of the right pool, size class and stream that was large enough?
        Spurious = "spurious",
        /// Would blocks that were freed, but are still in use on other streams, cover it?
        PendingFree = "pending-free",
        /// Would free memory in other pools (CUDA graphs, `MemPool`) cover it?
        PrivatePool = "private-pool",
        /// Would free memory in segments of other streams of the pool cover it?
        OtherStream = "other-stream",
        /// Would the free memory of the request's own pool and stream cover it, were it in one piece?
        Fragmentation = "fragmentation",
        /// Would what is in use outside this allocator cover it? Needs the device's capacity
        NonPytorch = "non-pytorch",
        /// Nothing by itself would: most often live memory and the request exceed the device
        Capacity = "capacity",
        /// What would answer these questions is not recorded
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
                "Raise or remove the limit of the process: torch.cuda.set_per_process_memory_fraction(), or \
                 per_process_memory_fraction in PYTORCH_CUDA_ALLOC_CONF. Serving frameworks set it too."
            }
            Self::Spurious => {
                "Make the request once more; if max_split_size_mb kept the block for larger requests, do \
                 without that setting."
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
                "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, unless it is on already: it leaves fewer \
                 pieces. `oomscope whatif` on a snapshot tells beforehand whether it suffices."
            }
            Self::NonPytorch => {
                "Look for other processes on the GPU (nvidia-smi, while the job runs) and for libraries with \
                 allocators of their own. A CUDA context takes up to about 1 GiB."
            }
            Self::Capacity => {
                "Hold less at that moment: a smaller batch or sequence, activation checkpointing, lower \
                 precision, sharding or offloading. A snapshot says which lines hold the memory."
            }
            Self::Unknown => {
                "Record a snapshot at the failure, with every action and a recent PyTorch, which records more."
            }
            Self::Served => "Nothing.",
        }
    }
}
