//! What `oomscope check` found, one file a format.

mod github;
mod human;
mod junit;
mod markdown;
mod sarif;
mod words;

pub use github::github;
pub use human::check_page;
pub use junit::junit;
pub use markdown::check_markdown;
pub use sarif::sarif;
