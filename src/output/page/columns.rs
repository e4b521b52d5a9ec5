//! Columns of numbers in LEB128, with zigzag encoding for differences.

use crate::base::intern::Distinct;
use crate::output::export::{push_varint, push_zigzag};

/// An encoded column.
#[derive(Debug)]
pub(super) struct Column {
    /// docs/report-data.md has the names.
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    last: u64,
}

impl Column {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, bytes: Vec::new(), last: 0 }
    }

    /// The number that `read` finds in each of `rows`.
    pub(super) fn from_rows<R>(name: &'static str, rows: &[R], read: impl Fn(&R) -> u64) -> Self {
        Self::from_values(name, rows.iter().map(read))
    }

    pub(super) fn from_values(name: &'static str, values: impl IntoIterator<Item = u64>) -> Self {
        let mut column = Self::new(name);
        values.into_iter().for_each(|value| column.push(value));
        column
    }

    /// Appends `value`.
    pub(super) fn push(&mut self, value: u64) {
        push_varint(&mut self.bytes, value);
    }

    /// Appends the difference from the previous value, which must not be larger than `value`.
    pub(super) fn push_more(&mut self, value: u64) {
        debug_assert!(value >= self.last, "values must not decrease");
        self.push(value.saturating_sub(self.last));
        self.last = value;
    }

    /// Appends the signed difference from the previous value.
    pub(super) fn push_change(&mut self, value: u64) {
        push_zigzag(&mut self.bytes, value.wrapping_sub(self.last).cast_signed());
        self.last = value;
    }
}

/// The streams and pools of the header.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    pub(super) streams: Distinct<u64>,
    pub(super) pools: Distinct<[u64; 2]>,
}

#[cfg(test)]
mod tests {
    use super::Column;

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let column = Column::from_values("numbers", [0, 127, 128, 300, u64::MAX]);
        let mut wanted = vec![0, 0x7f, 0x80, 1, 0xac, 2];
        wanted.extend([0xff; 9]);
        wanted.push(1);
        assert_eq!(column.bytes, wanted);
    }

    #[test]
    fn differences_have_a_sign_in_their_lowest_bit() {
        let mut column = Column::new("differences");
        for value in [5, 3, 3, 4, 0] {
            column.push_change(value);
        }
        assert_eq!(column.bytes, [10, 3, 0, 2, 7]);
        let mut column = Column::new("differences");
        for value in [0, u64::MAX, 0] {
            column.push_change(value);
        }
        assert_eq!(column.bytes, [0, 1, 2], "differences go around");
    }
}
