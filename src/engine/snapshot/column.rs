//! A column that takes no memory while all its rows are equal.

use crate::base::pages;

/// One value per row. Many keys have the same value in every trace entry (one stream, no compile context, one pool):
/// such a column is one value and a length.
#[derive(Debug, Clone)]
pub struct Column<T> {
    first: Option<T>,
    len: usize,
    /// All rows once two rows differ; empty before.
    rows: Vec<T>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { first: None, len: 0, rows: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Column<T> {
    /// Makes room for `rows`, in case they differ.
    pub(super) fn reserve(&mut self, rows: usize) {
        pages::reserve(&mut self.rows, rows);
    }

    /// Appends a row.
    #[inline]
    pub fn push(&mut self, value: T) {
        if self.rows.is_empty() {
            match self.first {
                None => self.first = Some(value),
                Some(first) if first == value => {}
                Some(first) => {
                    self.rows.resize(self.len, first);
                    self.rows.push(value);
                }
            }
        } else {
            self.rows.push(value);
        }
        self.len += 1;
    }

    /// The value in `row`, if there is one.
    #[inline]
    pub fn get(&self, row: usize) -> Option<T> {
        if self.rows.is_empty() { self.first.filter(|_| row < self.len) } else { self.rows.get(row).copied() }
    }

    /// All rows; one if all are equal.
    pub fn values(&self) -> &[T] {
        if self.rows.is_empty() { self.first.as_slice() } else { &self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_pushed() {
        for values in [vec![], vec![7], vec![7, 7, 7], vec![7, 7, 8, 7], vec![1, 2]] {
            let mut column = Column::default();
            for value in &values {
                column.push(*value);
            }
            let back: Vec<i32> = (0..values.len()).map(|i| column.get(i).unwrap()).collect();
            assert_eq!(back, values);
            let is_varied = values.iter().any(|value| *value != values[0]);
            assert_eq!(column.values(), if is_varied { &values } else { &values[..values.len().min(1)] });
            assert_eq!(column.get(values.len()), None);
        }
    }
}
