//! Reports in formats that other programs read: JSON, and those of CI systems.
//!
//! In: a finished report. Out: text, one function per format. Sentences for people come from
//! [`crate::output::report`].

mod github;
mod json;
mod junit;
mod sarif;

pub use github::github;
pub use json::{json, json_line};
pub use junit::junit;
pub use sarif::sarif;
