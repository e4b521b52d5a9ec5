//! What `oomscope check` found, as a document; its sentences serve the forms that CI systems read too.

mod check;
pub(crate) mod words;

pub use check::check;
