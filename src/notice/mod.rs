//! What every command may remark about a file: a [`Code`] that scripts go by, and a sentence.
//!
//! The codes stand in one list, each with its word and meaning; documentation is held equal to it. A room
//! that finds something odd adds a [`Warning`] and goes on. This room knows nothing of what is remarked on.

mod code;
mod warning;
mod words;

pub use code::Code;
pub use warning::{Warning, Warnings};
pub(crate) use words::words;
