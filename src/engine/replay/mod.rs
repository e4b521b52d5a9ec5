//! A device's trace, replayed.
//!
//! In: a [`crate::snapshot::Snapshot`]. Out: the trace applied literally, entry by entry ([`literal`]); the operations
//! that the program performed ([`ops`]); these operations performed on the allocator model, to verify the model, to
//! infer what the file does not record, or to simulate other settings ([`model`]). Knows no source code and no
//! commands: the rooms above give the replay a meaning.

pub mod literal;
pub mod model;
pub mod ops;
