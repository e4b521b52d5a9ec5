//! Finished answers rendered for their readers.
//!
//! In: the serializable answers of the rooms below. Out: text. [`report`] lays an answer out as a [`document`], which is
//! rendered for a terminal, as Markdown or as HTML; [`formats`] writes what other programs read; [`page`] is an HTML file
//! with every allocation in it. Computes no figures.

pub mod document;
pub mod formats;
pub mod page;
pub mod report;
