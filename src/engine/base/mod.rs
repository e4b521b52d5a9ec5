//! Tools that every room uses: amounts, ids, interned strings, input files, warnings.
//!
//! In: bytes of files, numbers and text. Out: types and functions that know neither PyTorch's allocator nor snapshots.

pub mod details;
pub mod ids;
pub mod input;
pub mod intern;
pub(crate) mod pages;
pub mod step_counter;
pub mod threads;
pub mod units;
pub mod warning;
