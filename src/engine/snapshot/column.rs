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

/// Numbers that take 32 bits each, as multiples of 2^`SHIFT`, until one is too far from the first.
#[derive(Debug, Clone, Default)]
pub struct Numbers<const SHIFT: u32> {
    base: u64,
    narrow: Vec<u32>,
    /// All numbers once one does not fit; empty before.
    wide: Vec<u64>,
}

impl<const SHIFT: u32> Numbers<SHIFT> {
    /// Makes room for `rows`.
    pub(super) fn reserve(&mut self, rows: usize) {
        pages::reserve(&mut self.narrow, rows);
    }

    /// Appends a row.
    #[expect(clippy::inline_always, reason = "called three times for every entry")]
    #[inline(always)]
    pub fn push(&mut self, value: u64) {
        match self.narrowed(value) {
            Some(narrow) if !self.narrow.is_empty() => self.narrow.push(narrow),
            _ if !self.wide.is_empty() => self.wide.push(value),
            _ => self.push_first_or_widen(value),
        }
    }

    /// `value` in 32 bits.
    #[inline]
    fn narrowed(&self, value: u64) -> Option<u32> {
        let offset = value.wrapping_sub(self.base);
        u32::try_from(offset >> SHIFT).ok().filter(|_| offset.is_multiple_of(1 << SHIFT))
    }

    #[cold]
    fn push_first_or_widen(&mut self, value: u64) {
        if self.narrow.is_empty() {
            self.base = value.saturating_sub(1 << (31 + SHIFT));
            if let Some(narrow) = self.narrowed(value) {
                return self.narrow.push(narrow);
            }
        }
        let narrow = std::mem::take(&mut self.narrow);
        pages::reserve(&mut self.wide, narrow.capacity());
        self.wide.extend(narrow.iter().map(|narrow| self.base.wrapping_add(u64::from(*narrow) << SHIFT)));
        self.wide.push(value);
    }

    /// The number in `row`, if there is one.
    #[inline]
    pub fn get(&self, row: usize) -> Option<u64> {
        match self.narrow.get(row) {
            Some(narrow) => Some(self.base.wrapping_add(u64::from(*narrow) << SHIFT)),
            None => self.wide.get(row).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_however_far_apart() {
        const FAR: u64 = 1 << 40;
        let base = 0x7f00_0000_0000;
        for (values, is_narrow) in [
            (vec![0, 0, 512, 1024], true),
            (vec![base, base - FAR, base + FAR - 512], true),
            (vec![base, base - FAR - 512], false),
            (vec![base, base + FAR], false),
            (vec![base, base + 1, base], false),
            (vec![512, u64::MAX, 1], false),
            (vec![u64::MAX, 511], true),
        ] {
            let mut numbers = Numbers::<9>::default();
            for value in &values {
                numbers.push(*value);
            }
            let back: Vec<u64> = (0..values.len()).map(|row| numbers.get(row).unwrap()).collect();
            assert_eq!(back, values);
            assert_eq!(numbers.get(values.len()), None);
            assert_eq!(numbers.wide.is_empty(), is_narrow, "{values:?}");
        }
    }

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
