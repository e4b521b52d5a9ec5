//! The catalogue of figures: name, unit, meaning, limit and value of each.
//!
//! Each [`Figure`] is declared once, as a row of `catalogue`. The limits of `oomscope check`, the figures of
//! `oomscope diff`, the series of `oomscope timeline` and tables of the documentation all come from these rows, so they
//! cannot differ. In: plain quantities, as a [`MemoryState`] or a [`FigureSource`]. Out: an [`Amount`], or why it is
//! unknown. Knows neither snapshots nor traces.

mod amount;
mod catalogue;
mod recording;
mod state;

pub use amount::{Amount, Unit};
pub use catalogue::{Figure, FigureLimit};
pub use recording::{FigureSource, Reading, UnknownReason};
pub use state::{BlockTotals, MemoryState, SegmentTotals, SizedCount};
