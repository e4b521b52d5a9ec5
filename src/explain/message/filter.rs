//! The few lines of a log that can matter, found quickly among the many.

use memchr::memmem::Finder;

/// A line without any of these does not matter when nothing has begun. Most lines of a log have none.
const MATTERS: [&str; 66] = [
    // "memory" alone is in every line of many a training log.
    "of memory",
    "f Memory",
    "OfMemory",
    "allocate memory",
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
    // What other systems print without a word of memory.
    "ALLOC",
    "EXHAUSTED",
    "OUT_OF_",
    "OOM",
    "oom",
    "Kill",
    "KV cache",
    "EL0004",
    "cublasCreate",
    "CUDA calloc",
    "cuDNN algorithm",
    "Unable to allocate",
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
];

/// Tells lines that can matter.
pub(super) struct Filter {
    words: [Finder<'static>; MATTERS.len()],
    /// Together in a line, they may be a frame as `rich` prints it. Alone they are everywhere.
    python: Finder<'static>,
    inside: Finder<'static>,
}

impl Filter {
    pub(super) fn new() -> Self {
        Self {
            words: MATTERS.map(Finder::new),
            python: Finder::new(".py"),
            inside: Finder::new(" in "),
        }
    }

    pub(super) fn passes(&self, raw: &[u8]) -> bool {
        self.words.iter().any(|word| word.find(raw).is_some())
            || (self.python.find(raw).is_some() && self.inside.find(raw).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::systems::systems;

    #[test]
    fn no_message_of_a_system_is_passed_over() {
        let filter = Filter::new();
        for system in systems() {
            let line = system.words.join(" ");
            assert!(filter.passes(line.as_bytes()), "{line}");
        }
        for usual in
            ["step 1200 loss 2.31 lr 3.0e-4 12.1 it/s", "eta: 1:02:03, memory: 5312, loss: 0.2"]
        {
            assert!(!filter.passes(usual.as_bytes()), "{usual}");
        }
    }
}
