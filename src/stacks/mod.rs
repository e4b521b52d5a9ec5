//! What a stack means: whose code its frames are, what the program was doing, and the same stack in another snapshot.
//!
//! In: the stacks and trace entries of a [`crate::snapshot::Snapshot`]. Out: the frame to show for a stack
//! ([`frames`]), the phase and training step of an entry ([`phases`]), pairs of equal stacks of two snapshots
//! ([`counterparts`]). Knows no sizes, no allocator and no replay.

pub mod counterparts;
pub mod frames;
pub mod phases;
