//! What changed from one snapshot to another: as a document, and as folded stacks.

mod cells;
mod document;
mod folded;

pub use document::diff;
pub use folded::diff_folded;
