//! The page of `oomscope check`, and the phrases that it shares with the formats of CI systems.

mod check;
pub(crate) mod phrases;

pub use check::check;
