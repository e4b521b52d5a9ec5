//! A fast filter that skips most lines of a log.

use memchr::memmem::Finder;

/// Unless a message, table or frame is unfinished, a line without any of these is skipped.
const PATTERNS: [&str; 86] = [
    // "memory" alone would match every line of many training logs.
    "of memory",
    "f Memory",
    "OfMemory",
    "allocate ",
    "memory block",
    "memory summary",
    "memory mapping failed",
    "MemoryError",
    "MemoryAllocation",
    "Memory_",
    "nough memory",
    "available memory",
    "Available memory",
    "Free memory",
    "GPU memory",
    "shared memory",
    "system memory",
    "memory profiling",
    "memory capacity",
    "memory space",
    "memory limit",
    "pinned memory",
    "pinned host memory",
    "memory available",
    "memory for requested",
    "Allocation on device",
    "(VSZ)",
    "_bytes.all.",
    "num_ooms",
    "num_alloc_retries",
    "Traceback",
    "File ",
    "Cell In[",
    "--> ",
    "\u{2771} ",
    // Messages of other systems that do not say "memory".
    "ALLOC",
    "EXHAUSTED",
    "OUT_OF_",
    "OOM",
    "oom",
    "Kill",
    "KV cache",
    "EL0004",
    "cublasCreate",
    "cuDNN algorithm",
    "unable to find an engine",
    "GPU RAM",
    "out of resource",
    "exitcode: -9",
    "return code = -9",
    "bad_alloc",
    "Bus error",
    "allocation of size",
    "DeviceMemory",
    "enough space",
    "Host Memory",
    "bad allocation",
    "Allocation Failure",
    "Insufficient VRAM",
    "metal::malloc",
    "CPU memory",
    "job killed",
    "Invalid buffer size",
    "code 137",
    "video memory",
    "resource: memory",
    "memory budget",
    "current device: ",
    "AlignedAllo",
    "PagedKvCache",
    "memory leak",
    "memory_saver",
    "usage threshold",
    "swap space",
    "max seq len",
    "kvcache tokens",
    "kv cache slot",
    "memory slot",
    "custom_all_reduce",
    // The servers of language models, whose options decide what PyTorch allocates.
    "vllm",
    "sglang",
    "text_generation",
    "ShardCannotStart",
    // Errors that are not about memory.
    "CUDA ",
    "illegal memory",
    "unhandled cuda",
];

pub(super) struct Filter {
    words: [Finder<'static>; PATTERNS.len()],
    /// A line with both may be a frame as `rich` prints it. Each alone is too common.
    python_file: Finder<'static>,
    in_function: Finder<'static>,
}

impl Filter {
    pub(super) fn new() -> Self {
        Self { words: PATTERNS.map(Finder::new), python_file: Finder::new(".py"), in_function: Finder::new(" in ") }
    }

    pub(super) fn is_match(&self, raw: &[u8]) -> bool {
        self.words.iter().any(|word| word.find(raw).is_some())
            || (self.python_file.find(raw).is_some() && self.in_function.find(raw).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::systems::known_messages;

    #[test]
    fn known_messages_pass_and_ordinary_lines_do_not() {
        let filter = Filter::new();
        for system in known_messages() {
            let line = system.words.join(" ");
            assert!(filter.is_match(line.as_bytes()), "{line}");
        }
        for usual in ["step 1200 loss 2.31 lr 3.0e-4 12.1 it/s", "eta: 1:02:03, memory: 5312, loss: 0.2"] {
            assert!(!filter.is_match(usual.as_bytes()), "{usual}");
        }
    }
}
