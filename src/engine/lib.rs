//! The engine of [oomscope](https://docs.rs/oomscope): the rooms that read, replay and study a snapshot.
//!
//! `oomscope` re-exports these modules; use them from there. They are a crate of their own to be compiled beside the
//! rest, and with more optimization in a development build.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod allocator;
#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod python;
#[doc(hidden)]
pub mod replay;
pub mod snapshot;
#[doc(hidden)]
pub mod stacks;
pub mod study;
