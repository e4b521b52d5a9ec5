//! Code words of verdicts and certainties.

use crate::base::warning::words;

words! {
    /// How sure a verdict is.
    pub enum Certainty {
        /// The numbers decide it
        Certain = "certain",
        /// The printed numbers allow it, but missing ones could change it
        Possible = "possible",
    }
}

words! {
    /// Why a request failed. The questions are asked in this order; causes that are cheapest to fix come first.
    /// Each description is the question that gives the verdict.
    #[derive(Default)]
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
        /// Does the program keep more each step, so that no setting helps for long? A conclusion of `analyze` alone
        Growth = "growth",
        /// The recording does not answer these questions
        #[default]
        Unknown = "unknown",
        /// The request would not fail (`analyze --request`)
        Served = "served",
    }
}
