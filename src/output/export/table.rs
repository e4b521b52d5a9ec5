//! Tables: columns of a few kinds, and rows of cells.

use std::io;

use crate::stacks::frames::FrameReport;

/// A table of the export.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The file's name, without extension.
    pub name: &'static str,
    /// In the order of the cells of each row.
    pub columns: &'static [Column],
}

/// A column of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name in every format.
    pub name: &'static str,
    /// The type of its cells.
    pub kind: Kind,
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Integer,
    /// A number or nothing.
    OptionalInteger,
    /// Text.
    Text,
    /// Text or nothing.
    OptionalText,
    /// True or false.
    Flag,
    /// Frames, innermost first.
    Frames,
}

/// A value of one row.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'c> {
    /// Nothing: not recorded, or it does not apply.
    Null,
    /// A number.
    Integer(i64),
    /// Text, already escaped.
    Text(&'c str),
    /// True or false.
    Flag(bool),
    /// Frames, innermost first.
    Frames(&'c [FrameReport]),
}

impl Cell<'_> {
    /// Saturates: only addresses that a file makes up are larger.
    pub fn from_u64(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// The number, or nothing.
    pub fn from_option(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::from_u64)
    }
}

/// Text or nothing, as a cell.
pub(super) fn text_cell(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Null, Cell::Text)
}

/// Writes the rows of one table to one file.
pub trait TableSink {
    /// Writes a row with a cell for each column.
    ///
    /// # Errors
    /// Any error from the file.
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()>;

    /// Completes the file.
    ///
    /// # Errors
    /// Any error from the file.
    fn finish(&mut self) -> io::Result<()>;
}
