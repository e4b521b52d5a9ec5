//! What every command may remark about a file: a [`Code`] that scripts go by, and a sentence.
//!
//! The codes stand in one list, each with its word and meaning; documentation is held equal to it. A room
//! that finds something odd adds a [`Warning`] and goes on. This room knows nothing of what is remarked on.

mod code;
mod warning;
mod words;

/// The call that records a history to look at. Its legacy form, `_record_memory_history(True)`, keeps one entry.
pub const RECORD_HISTORY_CALL: &str = "torch.cuda.memory._record_memory_history(max_entries=1_000_000)";

pub use code::Code;
pub use warning::{Warning, Warnings};
pub(crate) use words::words;
