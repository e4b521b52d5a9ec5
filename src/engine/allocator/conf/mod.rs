//! The allocator's settings, and the grammar of the string that sets them (`PYTORCH_CUDA_ALLOC_CONF`).
//!
//! [`parse`] reads a string as a given release of PyTorch does and returns [`Settings`] or PyTorch's own error.
//! The module does not read files or the environment.

mod change;
mod dialect;
mod format;
mod number;
mod parse;
mod settings;

pub use change::{ConfChange, find_option, shell_assignment};
pub use dialect::{ConfError, option_since};
pub use parse::{ParsedConf, UnknownKeys, parse};
pub use settings::{Reserve, Settings};

/// The setting against fragmentation.
pub const EXPANDABLE_SEGMENTS: &str = "expandable_segments:True";
