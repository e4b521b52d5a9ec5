//! Renders finished reports as text.
//!
//! In: the serializable reports of the rooms below. Out: text. [`report`] lays a report out as a [`document`], which is
//! rendered for a terminal, as Markdown or as HTML; `wording` has the
//! sentences about the facts; [`formats`] writes formats for other programs; [`page`] writes an
//! interactive HTML file with every allocation; `export` writes files of other tools' formats. Computes no figures.

pub mod document;
#[doc(hidden)]
pub mod export;
pub mod formats;
pub mod page;
pub mod report;
pub(crate) mod wording;

pub use wording::{Brief, BriefLine, BriefMoment, Summary};
