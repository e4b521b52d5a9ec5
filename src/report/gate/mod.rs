//! What `oomscope check` found: as a document, and a file for each form that CI systems read.

mod check;
mod github;
mod junit;
mod sarif;
mod words;

pub use check::check;
pub use github::github;
pub use junit::junit;
pub use sarif::sarif;
