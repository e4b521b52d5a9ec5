//! The catalogue of figures: what each is called, what it is measured in, what it means, and how it is read.
//!
//! A [`Figure`] is declared once, as a row of `catalogue`. The limits of `oomscope check` (flag, key of
//! `oomscope.toml`, finding), the figures of `oomscope diff`, the series of `oomscope timeline` and the
//! tables of the documentation are made from its rows, so that they cannot differ. Figures are read from
//! plain quantities: a [`MemoryState`] of the memory at a moment, or a [`FigureSource`] of a device. Knows neither
//! snapshots nor traces: rooms above fill in the quantities.

mod amount;
mod catalogue;
mod recording;
mod state;

pub use amount::{Amount, Unit};
pub use catalogue::{Figure, LimitRow};
pub use recording::{FigureSource, Reading, WhyUnknown};
pub use state::{MemoryState, SegmentCounts};
