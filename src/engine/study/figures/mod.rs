//! The catalogue of figures: name, unit, meaning, limit and value of each.
//!
//! Each [`Figure`] is declared once, as a row of `catalogue`. The limits of `oomscope check`, the figures of
//! `oomscope diff`, the series of `oomscope timeline` and tables of the documentation all come from these rows, so they
//! cannot differ. In: plain quantities, as a [`MemoryState`]. Out: an [`Amount`], or none for a figure of the whole
//! recording, which `compare` reads. Knows neither snapshots nor traces.

mod amount;
mod catalogue;
mod state;

pub use amount::{Amount, Unit};
pub use catalogue::{Figure, FigureLimit};
pub use state::{BlockTotals, MemoryState, SegmentTotals, SizedCount};
