//! The page of `oomscope diff`.

mod cells;
mod document;

pub use document::diff;
