//! Compares snapshots with each other, and checks them against limits.
//!
//! In: snapshots, and limits. Out: the changes between two snapshots ([`diff`]) and the violated limits ([`gate`]), as
//! serializable structs. This room reads no file and prints nothing.

pub mod diff;
pub mod gate;
