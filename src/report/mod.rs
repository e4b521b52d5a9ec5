//! Answers laid out: as documents, as JSON, and in the forms that CI systems and other programs read.
//!
//! Takes finished answers and returns a [`Document`](crate::document::Document) or text, a function for each
//! command. It computes nothing but words and order, and knows no snapshot, no replay and no terminal: how a
//! document looks is the renderers' part.

mod alike;
mod analyze;
mod diff;
mod explain;
mod failure;
mod gate;
mod held;
#[cfg(feature = "cuda")]
mod live;
mod memory;
mod plain_json;
mod ranks;
mod replay;
mod timeline;
mod timeline_csv;
mod whatif;
mod words;

pub use analyze::analyze;
pub use diff::{diff, diff_folded};
pub use explain::explain;
pub use gate::{check, github, junit, sarif};
#[cfg(feature = "cuda")]
pub use live::{costs, live};
pub use replay::replay;
pub use timeline::timeline;
pub use timeline_csv::timeline_csv;
pub use whatif::whatif;

use serde::Serialize;
use serde_json::Serializer;

use self::plain_json::PlainJson;

/// A result as JSON, with a newline at the end.
///
/// # Errors
/// Never for these results; the type is `serde_json`'s.
pub fn json(report: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::new();
    report.serialize(&mut Serializer::with_formatter(&mut text, PlainJson::default()))?;
    text.push(b'\n');
    Ok(String::from_utf8(text).unwrap_or_default())
}
