//! Tables: columns of a few kinds, and rows of cells.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use itertools::Itertools as _;

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

impl Column {
    pub(super) fn is_optional(self) -> bool {
        matches!(self.kind, Kind::OptionalInteger | Kind::OptionalText)
    }
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
    #[inline]
    pub fn from_u64(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// The number, or nothing.
    #[inline]
    pub fn from_option(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::from_u64)
    }
}

/// Text or nothing, as a cell.
pub(super) fn text_cell(text: Option<&str>) -> Cell<'_> {
    text.map_or(Cell::Null, Cell::Text)
}

/// The cell of a column in a row.
pub type CellOf<'f, 'c> = dyn Fn(usize) -> Cell<'c> + Sync + 'f;

/// Writes the rows of one table to one file.
pub trait TableSink {
    /// Writes a row with a cell for each column.
    fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> io::Result<()>;

    /// Writes rows from 0 to `count`.
    fn rows(&mut self, count: usize, columns: &[&CellOf<'_, '_>]) -> io::Result<()> {
        (0..count).try_for_each(|row| self.row(columns.iter().map(|cell| cell(row))))
    }

    /// Completes the file.
    fn finish(&mut self) -> io::Result<()>;
}

/// Writes a table as CSV. Cells without a value are empty.
pub struct CsvTable<W> {
    out: W,
    line: String,
}

impl<W: Write> CsvTable<W> {
    /// Writes the header.
    pub fn new(table: Table, mut out: W) -> io::Result<Self> {
        writeln!(out, "{}", table.columns.iter().map(|column| column.name).format(","))?;
        Ok(Self { out, line: String::new() })
    }
}

impl<W: Write> TableSink for CsvTable<W> {
    fn row<'c>(&mut self, cells: impl IntoIterator<Item = Cell<'c>>) -> io::Result<()> {
        let line = &mut self.line;
        line.clear();
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            // Writing to a string cannot fail.
            let _ = match cell {
                Cell::Null => Ok(()),
                Cell::Integer(number) => write!(line, "{number}"),
                Cell::Flag(flag) => write!(line, "{flag}"),
                Cell::Text(text) => push_text(line, text),
                // Frames have strings and numbers only, which can always be written as JSON.
                Cell::Frames(frames) => push_text(line, &serde_json::to_string(frames).unwrap_or_default()),
            };
        }
        line.push('\n');
        self.out.write_all(line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A spreadsheet takes text that begins so for a formula: such text gets an apostrophe.
const FORMULA_STARTS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

fn push_text(line: &mut String, text: &str) -> fmt::Result {
    let quote = if text.contains([',', '"', '\n', '\r']) { "\"" } else { "" };
    // A lone `-`, the name of standard input, is no formula.
    let apostrophe = if text.starts_with(FORMULA_STARTS) && text != "-" { "'" } else { "" };
    write!(line, "{quote}{apostrophe}{}{quote}", text.split('"').format("\"\""))
}

#[cfg(test)]
mod tests {
    use super::push_text;

    #[test]
    fn text_from_a_file_stays_text() {
        for (text, cell) in [
            ("train.py", "train.py"),
            ("-", "-"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("@SUM(A1,B1)", "\"'@SUM(A1,B1)\""),
            ("a \"b\", c", "\"a \"\"b\"\", c\""),
        ] {
            let mut line = String::new();
            push_text(&mut line, text).unwrap();
            assert_eq!(line, cell);
        }
    }
}
