//! Warnings about a file: a [`Code`] for scripts, and a sentence for people.
//!
//! In: a code and a sentence, from any room that finds a problem and continues. Out: each warning once, in order of
//! codes. One list defines all codes and their meanings, and a test compares the documentation with it. Knows nothing
//! of the problems themselves.

mod code;
mod warnings;
mod words;

/// Records the history of a job that fails; the program needs no change.
pub const RECORD_COMMAND: &str = "oomscope run -- python train.py";
/// The same for a job that may not fail.
pub const RECORD_TO_END_COMMAND: &str = "oomscope run --at exit -- python train.py";
/// The same with room for more trace entries.
pub const RECORD_MORE_COMMAND: &str = "oomscope run --at exit --max-entries 4M -- python train.py";
/// The call that records a useful history. Its legacy form, `_record_memory_history(True)`, keeps one entry.
pub const RECORD_HISTORY_CALL: &str = "torch.cuda.memory._record_memory_history(max_entries=1_000_000)";

pub use code::Code;
pub use warnings::{Warning, Warnings};
pub use words::words;
