//! Interprets stacks: whose code a frame is, what the program was doing, which stacks of two snapshots are the same.
//!
//! In: the stacks and trace entries of a [`crate::snapshot::Snapshot`]. Out: the frame to show for a stack
//! ([`frames`]), the phase and training step of an entry ([`phases`]), pairs of equal stacks of two snapshots
//! ([`matching`]), and the serving engine that a frame belongs to ([`engines`]). Knows no sizes, no allocator and no replay.

pub mod engines;
pub mod frames;
pub mod matching;
pub mod phases;
