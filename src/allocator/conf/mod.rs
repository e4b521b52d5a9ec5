//! Settings of PyTorch's caching allocator, and the grammar of the string that sets them.
//!
//! Knows nothing of files or environment: the string comes from whoever has it.

mod change;
mod dialect;
mod error;
mod number;
mod pairs;
mod parse;
mod settings;
mod tokens;
mod written;

pub use change::{Change, environment};
pub use error::ConfError;
pub use pairs::option_in;
pub use parse::{Parsed, Unknown, parse};
pub use settings::{Reserve, Settings};
