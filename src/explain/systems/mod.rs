//! Out-of-memory messages of systems other than PyTorch's allocator, the engines that serve language models, and the words
//! of each device vendor, as data.
//!
//! Tables in TOML go in; rows with a message's words, meaning and advice come out. This room does not know logs
//! ([`crate::explain::message`] finds the words there) or reports.

mod catalogue;
mod engines;
mod other_errors;
mod vendors;

pub use catalogue::{KnownMessage, MessageAmount, known_messages};
pub use engines::{Engine, engine_in, engines};
pub use other_errors::other_error;
pub use vendors::{SNAPSHOT, Vendor, vendor};
