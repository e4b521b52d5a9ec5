//! The few lines of a log that can matter, found quickly among the many.

use memchr::memmem::Finder;

/// A line without any of these does not matter when nothing has begun. Most lines of a log have none.
const MATTERS: [&str; 16] = [
    "of memory",
    "allocate memory",
    "enough memory",
    "memory summary",
    "memory mapping failed",
    "(VSZ)",
    "ALLOC_FAILED",
    "Allocation on device",
    "Failed to CUDA",
    "_bytes.all.",
    "num_ooms",
    "num_alloc_retries",
    "Traceback",
    "File ",
    "Cell In[",
    "--> ",
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
