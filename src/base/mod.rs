//! What every room uses and no domain owns: amounts, ids, interning, reading files, warnings.
//!
//! In: nothing. Out: types and functions that know neither PyTorch nor memory.

pub mod ids;
pub mod input;
pub mod intern;
pub mod summary;
pub mod units;
pub mod warning;
