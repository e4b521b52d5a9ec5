//! Results laid out: for a terminal, as JSON, as Markdown, and in the forms that CI systems read.
//!
//! Takes finished results and returns text. It computes nothing but layout, and knows no snapshot,
//! no replay, no terminal: how wide and how plain the text is comes in a [`Style`].

mod chart;
mod diff;
mod explain;
mod failure;
mod gate;
mod held;
#[cfg(feature = "cuda")]
mod live;
mod markdown;
mod obstacles;
mod page;
mod ranks;
mod replay;
mod sheet;
mod spaces;
mod style;
mod table;
mod timeline;
mod timeline_csv;
mod whatif;
mod words;

pub use diff::{diff_folded, diff_markdown, diff_page};
pub use explain::explain_page;
pub use gate::{check_markdown, check_page, github, junit, sarif};
#[cfg(feature = "cuda")]
pub use live::{costs_page, live_page};
pub use markdown::markdown;
pub use page::page;
pub use replay::replay_page;
pub use style::Style;
pub use timeline::timeline_page;
pub use timeline_csv::timeline_csv;
pub use whatif::whatif_page;

use serde::Serialize;

/// A result as JSON, with a newline at the end.
///
/// # Errors
/// Never for these results; the type is `serde_json`'s.
pub fn json(report: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}
