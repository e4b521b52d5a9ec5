//! A document: what an answer says, in blocks, before anyone knows where it will be read.
//!
//! Takes headings, sentences, names with what is said of them, tables, charts and stacks, and turns them into a
//! terminal's page ([`terminal`]) or Markdown ([`markdown`]). Blocks say what something is, never how it looks:
//! widths, alignment, colours, drawing characters and escaping belong to the renderers. Whatever text comes
//! in, from files that anyone may have written, each renderer makes harmless in one place.

mod area;
mod block;
mod bounded;
mod chart;
mod curve;
mod drawing;
mod html;
mod markdown;
mod markup;
mod pens;
mod picture;
mod places;
mod stretches;
mod table;
#[cfg(feature = "terminal")]
mod terminal;
mod text;
mod ticks;
mod wrap;

pub use block::{Block, Document, Field, Item, Stack};
pub use bounded::comment;
pub use chart::{Chart, Layer, RowNote, ChartRow, Shape, Band};
pub use curve::{Curve, CurveLine, LineRole, CurveMark, CurvePoint, curve};
pub use html::html;
pub use markdown::markdown;
pub use markup::escape_html as html_literal;
pub use table::{Cell, Table};
#[cfg(feature = "terminal")]
pub use terminal::{Style, terminal};
pub use text::{Span, Text, Tone, alarm, code, faint, place, strong};
