//! Reports in formats that other programs read: JSON, CSV, folded stacks, and those of CI systems.
//!
//! In: a finished report. Out: text, one function per format. Sentences for people come from
//! [`crate::output::report`].

mod csv;
mod folded;
mod github;
mod json;
mod junit;
mod sarif;
mod trend;

pub use csv::{csv_with_path, timeline_csv};
pub use folded::diff_folded;
pub(crate) use folded::{NO_STACK, folded_label};
pub use github::github;
pub use json::{json, json_line};
pub use junit::junit;
pub use sarif::sarif;
pub use trend::{trend_github, trend_junit, trend_sarif};
