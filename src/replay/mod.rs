//! A device's trace replayed.
//!
//! In: a [`crate::snapshot::Snapshot`]. Out: the trace applied literally, entry by entry ([`facts`]); the operations that
//! the program performed ([`calls`]); these operations performed on the allocator model, to verify it against the
//! recording, to infer what the file leaves open, or to simulate other settings ([`model`]). Knows no stacks and no
//! questions: what the replay means is for the rooms above.

pub mod ops;
pub mod literal;
pub mod model;
