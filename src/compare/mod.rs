//! Compares snapshots with each other, and checks them against limits.
//!
//! In: snapshots, and limits. Out: the changes between two snapshots ([`diff`]), the answers about all snapshots of a job
//! ([`fleet`]) and the violated limits ([`gate`]), as serializable structs. This room reads no file and prints nothing.

pub mod diff;
pub mod fleet;
pub mod gate;
