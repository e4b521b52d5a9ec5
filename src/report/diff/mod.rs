//! What changed from one snapshot to another, laid out.

mod cells;
mod folded;
mod human;
mod markdown;

pub use folded::diff_folded;
pub use human::diff_page;
pub use markdown::diff_markdown;
