//! What changed from one snapshot to another.

mod cells;
mod document;

pub use document::diff;
