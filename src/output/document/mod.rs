//! A page as blocks of content, independent of the output format.
//!
//! In: headings, paragraphs, fields, tables, charts and stacks. Out: a terminal page ([`terminal`]), Markdown
//! ([`markdown`]) or HTML ([`html()`]). Blocks carry meaning only; widths, alignment, colours, drawing characters and
//! escaping belong to the renderers. Text may come from hostile files: each renderer escapes it in one place. Knows
//! nothing of snapshots or reports.

pub(crate) mod bands;
#[doc(hidden)]
mod block;
mod html;
mod markdown;
mod short_paths;
#[doc(hidden)]
mod table;
#[cfg(feature = "terminal")]
pub(crate) mod terminal;
#[doc(hidden)]
mod text;
mod text_chart;
mod ticks;

pub use block::Document;
#[doc(hidden)]
pub use block::{Band, BarKind, BarPart, Block, Chart, Failures, Field, Item, Source, Stack};
pub use html::{escape_html as html_literal, html};
pub use markdown::{markdown, markdown_comment};
#[doc(hidden)]
pub use table::{Cell, Column, Judgement, Table, TableOf};
#[cfg(feature = "terminal")]
pub use terminal::{Style, terminal};
#[doc(hidden)]
pub use text::{Span, Text, Tone, alarm, amount, code, faint, signed_amount, source_location, strong};
