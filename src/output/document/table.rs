//! Tables.

use std::borrow::Cow;

use super::text::Text;

/// Rows under a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What the rows are.
    pub caption: Option<Text>,
    /// The names of the columns; empty where the cells speak for themselves.
    pub header: Vec<Cow<'static, str>>,
    /// Which columns hold words; the others hold numbers.
    pub words: Vec<usize>,
    /// The columns that are left out, one after the other, where there is no room for all.
    pub least: Vec<usize>,
    /// From the top down.
    pub rows: Vec<Vec<Cell>>,
    /// What is to be known of the rows.
    pub note: Option<Text>,
}

/// What stands in one row and column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Most cells.
    Text(Text),
    /// One of the parts of the row above that is less deep.
    Part(u8, Text),
    /// A text and what belongs below it.
    Over(Text, Vec<Text>),
    /// How much of a whole, from 0 to 1.
    Bar(f64),
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Table {
    /// A table whose columns in `words` hold words, the others numbers.
    pub fn new<H: Into<Cow<'static, str>> + Clone, C: Into<Cell>>(
        header: &[H],
        words: &[usize],
        rows: impl IntoIterator<Item = Vec<C>>,
    ) -> Self {
        let cells = |row: Vec<C>| row.into_iter().map(Into::into).collect();
        Self {
            caption: None,
            header: header.iter().cloned().map(Into::into).collect(),
            words: words.to_vec(),
            least: Vec::new(),
            rows: rows.into_iter().map(cells).collect(),
            note: None,
        }
    }

    /// With what the rows are.
    #[must_use]
    pub fn caption(self, caption: impl Into<Text>) -> Self {
        Self { caption: Some(caption.into()), ..self }
    }

    /// With `columns` to be left out where there is no room, the first of them first.
    #[must_use]
    pub fn least(self, columns: &[usize]) -> Self {
        Self { least: columns.to_vec(), ..self }
    }

    /// With what is to be known of the rows, if anything.
    #[must_use]
    pub fn note(self, note: Option<impl Into<Text>>) -> Self {
        Self { note: note.map(Into::into), ..self }
    }

    /// Without `column`.
    #[must_use]
    pub fn without(mut self, column: usize) -> Self {
        self.header.remove(column);
        for row in &mut self.rows {
            if column < row.len() {
                row.remove(column);
            }
        }
        for columns in [&mut self.words, &mut self.least] {
            columns.retain(|other| *other != column);
            for later in columns.iter_mut().filter(|other| **other > column) {
                *later -= 1;
            }
        }
        self
    }
}
