//! Tables and their cells.

use std::borrow::Cow;

use super::text::Text;
use crate::base::warning::words;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Whether the first column takes what is left of the page's width, so that numbers of several tables align.
    pub is_wide: bool,
    /// A cell of each column.
    pub rows: Vec<Vec<Cell>>,
    /// Shown below the rows.
    pub note: Option<Text>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Empty where the cells need none.
    pub heading: Cow<'static, str>,
    /// Text is left-aligned and may be cut. Other columns hold numbers.
    pub is_text: bool,
    /// A narrow page drops it, the last of several first.
    pub is_optional: bool,
}

/// A table in the making: rows, and the columns that are made from them.
#[must_use]
#[derive(Debug)]
pub struct TableOf<R> {
    rows: Vec<R>,
    table: Table,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    /// A judgement of the row, before the text.
    pub mark: Option<Judgement>,
    /// Levels by which the text is indented: a part of a row above.
    pub depth: Option<u8>,
    pub text: Text,
    /// Further lines below it.
    pub details: Vec<Text>,
}

words! {
    /// A judgement in one character
    pub enum Judgement {
        /// It helps; a limit holds
        Good = "good",
        /// It may help: a guess, or what follows is not known
        Perhaps = "perhaps",
        /// It does not help; a limit does not hold
        Bad = "bad",
    }
}

impl Judgement {
    /// In Unicode, and in ASCII.
    pub(super) fn glyphs(self) -> [&'static str; 2] {
        match self {
            Self::Good => ["✓", "+"],
            Self::Perhaps => ["~", "~"],
            Self::Bad => ["✗", "x"],
        }
    }
}

impl Cell {
    pub fn marked(mark: Judgement, text: impl Into<Text>) -> Self {
        Self { mark: Some(mark), ..Self::from(text) }
    }

    pub fn indented(depth: u8, text: impl Into<Text>) -> Self {
        Self { depth: Some(depth), ..Self::from(text) }
    }

    pub fn with_details(text: impl Into<Text>, details: Vec<Text>) -> Self {
        Self { details, ..Self::from(text) }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Table {
    /// A table of `rows`, without a column yet.
    pub fn from_rows<R>(rows: impl IntoIterator<Item = R>) -> TableOf<R> {
        let rows: Vec<R> = rows.into_iter().collect();
        let cells = rows.iter().map(|_| Vec::new()).collect();
        TableOf { rows, table: Self { rows: cells, ..Self::default() } }
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut Text> {
        let cells = self.rows.iter_mut().flatten();
        let texts = cells.flat_map(|cell| std::iter::once(&mut cell.text).chain(&mut cell.details));
        self.note.iter_mut().chain(texts).collect()
    }

    pub(super) fn is_text(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|column| column.is_text)
    }

    /// The table without the last column that a narrow page drops; `None` if there is none.
    #[cfg(feature = "terminal")]
    pub(super) fn narrower(&self) -> Option<Self> {
        let dropped = self.columns.iter().rposition(|column| column.is_optional)?;
        let mut table = self.clone();
        table.columns.remove(dropped);
        for row in &mut table.rows {
            row.remove(dropped);
        }
        Some(table)
    }
}

impl<R> TableOf<R> {
    /// Adds a column of text.
    pub fn text<C: Into<Cell>>(self, heading: impl Into<Cow<'static, str>>, cell: impl Fn(&R) -> C) -> Self {
        self.column(heading.into(), true, cell)
    }

    /// Adds a column of numbers.
    pub fn number<C: Into<Cell>>(self, heading: impl Into<Cow<'static, str>>, cell: impl Fn(&R) -> C) -> Self {
        self.column(heading.into(), false, cell)
    }

    fn column<C: Into<Cell>>(mut self, heading: Cow<'static, str>, is_text: bool, cell: impl Fn(&R) -> C) -> Self {
        self.table.columns.push(Column { heading, is_text, is_optional: false });
        for (row, cells) in self.rows.iter().zip(&mut self.table.rows) {
            cells.push(cell(row).into());
        }
        self
    }

    /// Lets a narrow page drop the last column.
    pub fn optional(mut self) -> Self {
        if let Some(column) = self.table.columns.last_mut() {
            column.is_optional = true;
        }
        self
    }

    /// Removes the last column again unless `is_shown`.
    pub fn only_if(mut self, is_shown: bool) -> Self {
        if !is_shown {
            self.table.columns.pop();
            for cells in &mut self.table.rows {
                cells.pop();
            }
        }
        self
    }

    /// Widens the first column to the width of the page.
    pub fn wide(mut self) -> Self {
        self.table.is_wide = true;
        self
    }

    pub fn note(mut self, note: Option<impl Into<Text>>) -> Self {
        self.table.note = note.map(Into::into);
        self
    }
}

impl<R> From<TableOf<R>> for Table {
    fn from(of: TableOf<R>) -> Self {
        of.table
    }
}
