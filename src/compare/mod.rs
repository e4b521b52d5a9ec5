//! Snapshots compared: with each other, or with limits.
//!
//! In: two or more [studies](crate::study::Study) or finished analyses, and limits. Out: what changed ([`diff`]) and
//! which limits are broken ([`gate`]), as serializable structs.

pub mod diff;
pub mod gate;
