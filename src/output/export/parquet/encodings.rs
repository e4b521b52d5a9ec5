//! Encodings of values: bit packing, run lengths, deltas.

use std::iter::repeat_n;

use crate::output::export::protobuf::{push_varint, push_zigzag};

/// Deltas per block of `DELTA_BINARY_PACKED`, in four miniblocks.
const BLOCK: usize = 128;
const MINIBLOCKS: usize = 4;
const MINIBLOCK: usize = BLOCK / MINIBLOCKS;

/// `DELTA_BINARY_PACKED`: differences, packed in as many bits as each 32 of them need.
pub(super) fn delta_packed(values: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 2);
    push_varint(&mut bytes, BLOCK as u64);
    push_varint(&mut bytes, MINIBLOCKS as u64);
    push_varint(&mut bytes, values.len() as u64);
    push_zigzag(&mut bytes, values.first().copied().unwrap_or_default());
    let Some((mut last, rest)) = values.split_first() else { return bytes };
    for block in rest.chunks(BLOCK) {
        let mut deltas = [0; BLOCK]; // after the last value, padding
        let mut min_delta = i64::MAX;
        for (delta, value) in deltas.iter_mut().zip(block) {
            // The format demands differences that wrap around.
            let difference = value.wrapping_sub(*last);
            (*delta, last) = (difference.cast_unsigned(), value);
            min_delta = min_delta.min(difference);
        }
        push_zigzag(&mut bytes, min_delta);
        deltas[..block.len()].iter_mut().for_each(|delta| *delta = delta.wrapping_sub(min_delta.cast_unsigned()));
        let widths: [u32; MINIBLOCKS] =
            std::array::from_fn(|at| bits_of_largest(&deltas[at * MINIBLOCK..][..MINIBLOCK]));
        bytes.extend(widths.map(|width| width.to_le_bytes()[0]));
        for (miniblock, width) in deltas.chunks(MINIBLOCK).zip(widths).filter(|(_, width)| *width > 0) {
            pack(&mut bytes, width, miniblock.iter().copied());
        }
    }
    bytes
}

/// The bits that the largest of `values` needs.
pub(super) fn bits_of_largest(values: &[u64]) -> u32 {
    u64::BITS - values.iter().fold(0, |bits, value| bits | value).leading_zeros()
}

/// The hybrid of run lengths and bit packing, all of it packed in `width` bits.
pub(super) fn packed_indexes(indexes: &[u32], width: u32) -> Vec<u8> {
    const GROUP: usize = 8;
    let groups = indexes.len().div_ceil(GROUP);
    let mut bytes = vec![width.to_le_bytes()[0]];
    push_varint(&mut bytes, (groups as u64) << 1 | 1);
    let padding = repeat_n(0, groups * GROUP - indexes.len());
    pack(&mut bytes, width, indexes.iter().map(|index| u64::from(*index)).chain(padding));
    bytes
}

/// Levels of 0 and 1, as run lengths, after their length in bytes.
pub(super) fn level_runs(levels: &[bool]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for run in levels.chunk_by(|level, next| level == next) {
        push_varint(&mut bytes, (run.len() as u64) << 1);
        bytes.push(u8::from(run.first() == Some(&true)));
    }
    let len = crate::base::ids::to_u32(bytes.len() - 4).to_le_bytes();
    bytes[..4].copy_from_slice(&len);
    bytes
}

/// One bit per value, as `PLAIN` booleans are.
pub(super) fn packed_flags(flags: &[bool]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(&mut bytes, 1, flags.iter().map(|flag| u64::from(*flag)));
    bytes
}

/// Appends `values` of `width` bits, lowest bit first.
fn pack(bytes: &mut Vec<u8>, width: u32, values: impl IntoIterator<Item = u64>) {
    let (mut pending, mut pending_bits) = (0_u64, 0);
    for value in values {
        pending |= value << pending_bits;
        pending_bits += width;
        if pending_bits >= u64::BITS {
            bytes.extend_from_slice(&pending.to_le_bytes());
            pending_bits -= u64::BITS;
            pending = value.checked_shr(width - pending_bits).unwrap_or_default();
        }
    }
    bytes.extend_from_slice(&pending.to_le_bytes()[..pending_bits.div_ceil(8) as usize]);
}

/// A struct under construction; its fields are added in ascending order.
#[derive(Debug, Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last_field: u8,
}

/// Type codes of the protocol.
pub(super) const I32: u8 = 5;
const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// An encoded element of a list.
pub(super) type Element = Vec<u8>;

impl Struct {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn field(&mut self, id: u8, code: u8) {
        debug_assert!(id > self.last_field && id - self.last_field < 16, "fields ascend");
        self.bytes.push((id - self.last_field) << 4 | code);
        self.last_field = id;
    }

    pub(super) fn i32(mut self, id: u8, value: i32) -> Self {
        self.field(id, I32);
        push_zigzag(&mut self.bytes, value.into());
        self
    }

    pub(super) fn i64(mut self, id: u8, value: u64) -> Self {
        self.field(id, I64);
        push_zigzag(&mut self.bytes, value.cast_signed());
        self
    }

    pub(super) fn text(mut self, id: u8, text: &str) -> Self {
        self.field(id, BINARY);
        self.bytes.extend(text_element(text));
        self
    }

    pub(super) fn nested(mut self, id: u8, inner: Self) -> Self {
        self.field(id, STRUCT);
        self.bytes.extend(inner.end());
        self
    }

    pub(super) fn list(mut self, id: u8, code: u8, elements: &[Element]) -> Self {
        const LONG: usize = 15;
        self.field(id, LIST);
        match u8::try_from(elements.len()) {
            Ok(len) if usize::from(len) < LONG => self.bytes.push(len << 4 | code),
            _ => {
                self.bytes.push(0xf0 | code);
                push_varint(&mut self.bytes, elements.len() as u64);
            }
        }
        self.bytes.extend(elements.iter().flatten());
        self
    }

    /// The encoded struct.
    pub(super) fn end(mut self) -> Element {
        self.bytes.push(0);
        self.bytes
    }
}

pub(super) fn i32_element(value: i32) -> Element {
    let mut bytes = Vec::new();
    push_zigzag(&mut bytes, value.into());
    bytes
}

pub(super) fn text_element(text: &str) -> Element {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::{delta_packed, level_runs, packed_flags, packed_indexes};

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        // The examples of Encodings.md: 1 to 5, and 7 5 3 1 2 3 4 5.
        assert_eq!(delta_packed(&[1, 2, 3, 4, 5]), [128, 1, 4, 5, 2, 2, 0, 0, 0, 0]);
        let packed = delta_packed(&[7, 5, 3, 1, 2, 3, 4, 5]);
        assert_eq!(packed[..10], [128, 1, 4, 8, 14, 3, 2, 0, 0, 0]);
        assert_eq!(packed[10..], [0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0]);
        // The numbers 0 to 7 in 3 bits.
        let indexes: Vec<u32> = (0..8).collect();
        assert_eq!(packed_indexes(&indexes, 3), [3, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(level_runs(&[true, true, false]), [4, 0, 0, 0, 4, 1, 2, 0]);
        assert_eq!(packed_flags(&[true, false, true]), [0b101]);
        assert_eq!(delta_packed(&[]), [128, 1, 4, 0, 0]);
    }

    #[test]
    fn differences_wrap_around() {
        assert!(delta_packed(&[i64::MIN, i64::MAX, 0, -1]).len() > 10);
    }
}
