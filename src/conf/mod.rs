//! Settings of PyTorch's caching allocator, and the grammar of the string that sets them.
//!
//! Knows nothing of files or environment: the string comes from whoever has it.

mod dialect;
mod error;
mod number;
mod overlay;
mod parse;
mod settings;
mod tokens;

pub use error::ConfError;
pub use overlay::{option_in, overlay};
pub use parse::{Parsed, Unknown, parse};
pub use settings::{Reserve, Settings};
