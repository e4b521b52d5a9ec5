//! Tables and their cells.

use std::borrow::Cow;

use super::text::Text;

#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Column names; empty strings where the cells need none.
    pub header: Vec<Cow<'static, str>>,
    /// Indexes of the columns that hold text (left-aligned, may be cut). The others hold numbers.
    pub text_columns: Vec<usize>,
    /// Columns to drop on a narrow page, the first of these first.
    pub optional_columns: Vec<usize>,
    /// Whether the first column takes what is left of the page's width, so that numbers of several tables align.
    pub is_wide: bool,
    pub rows: Vec<Vec<Cell>>,
    /// Shown below the rows.
    pub note: Option<Text>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(Text),
    /// Text indented by this many levels: a part of a row above.
    Indented(u8, Text),
    /// Text with further lines below it.
    WithDetails(Text, Vec<Text>),
    /// A bar; the share is between 0 and 1.
    Bar(f64),
    /// A judgement of the row, and text.
    Marked(Judgement, Text),
}

/// A judgement in one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It helps; a limit holds.
    Good,
    /// It may help: a guess, or what follows is not known.
    Perhaps,
    /// It does not help; a limit does not hold.
    Bad,
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
    fn texts_mut(&mut self) -> Vec<&mut Text> {
        match self {
            Self::Text(text) | Self::Indented(_, text) | Self::Marked(_, text) => vec![text],
            Self::WithDetails(text, below) => std::iter::once(text).chain(below).collect(),
            Self::Bar(_) => Vec::new(),
        }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Table {
    /// A table without note; `text_columns` are indexes of the columns that hold text.
    pub fn new<H: Into<Cow<'static, str>> + Clone, C: Into<Cell>>(
        header: &[H],
        text_columns: &[usize],
        rows: impl IntoIterator<Item = Vec<C>>,
    ) -> Self {
        let cells = |row: Vec<C>| row.into_iter().map(Into::into).collect();
        Self {
            header: header.iter().cloned().map(Into::into).collect(),
            text_columns: text_columns.to_vec(),
            optional_columns: Vec::new(),
            is_wide: false,
            rows: rows.into_iter().map(cells).collect(),
            note: None,
        }
    }

    pub(super) fn texts_mut(&mut self) -> Vec<&mut Text> {
        let cells = self.rows.iter_mut().flatten().flat_map(Cell::texts_mut);
        self.note.iter_mut().chain(cells).collect()
    }

    /// Sets the columns to drop on a narrow page, the first of `by_priority` first.
    #[must_use]
    pub fn optional_columns(self, by_priority: &[usize]) -> Self {
        Self { optional_columns: by_priority.to_vec(), ..self }
    }

    /// Widens the first column to the width of the page.
    #[must_use]
    pub fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    #[must_use]
    pub fn note(self, note: Option<impl Into<Text>>) -> Self {
        Self { note: note.map(Into::into), ..self }
    }

    #[must_use]
    pub fn without_column(mut self, column: usize) -> Self {
        self.header.remove(column);
        for row in &mut self.rows {
            if column < row.len() {
                row.remove(column);
            }
        }
        for columns in [&mut self.text_columns, &mut self.optional_columns] {
            columns.retain(|other| *other != column);
            for later in columns.iter_mut().filter(|other| **other > column) {
                *later -= 1;
            }
        }
        self
    }
}
