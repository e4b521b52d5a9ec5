//! Settings of PyTorch's caching allocator, as plain values.
//!
//! Knows nothing of files or environment: the string comes from whoever has it.

mod settings;

pub use settings::{Settings, option_in};
