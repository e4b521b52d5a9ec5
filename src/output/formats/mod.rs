//! Answers in the forms that other programs read: JSON, CSV, folded stacks, and what CI systems show.
//!
//! A function for each form, from a finished answer to text. Where a form holds sentences for people, they are
//! those of [`crate::output::report`].

mod csv;
mod folded;
mod github;
mod json;
mod junit;
mod sarif;

pub use csv::timeline_csv;
pub use folded::diff_folded;
pub use github::github;
pub use json::{json, json_line};
pub use junit::junit;
pub use sarif::sarif;
