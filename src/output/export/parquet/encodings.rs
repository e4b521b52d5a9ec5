//! Encodings of values: bit packing, run lengths, deltas.

use super::super::protobuf::push_varint;
use super::thrift::push_zigzag;

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
    // The format demands differences that wrap around.
    let deltas: Vec<i64> = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for block in deltas.chunks(BLOCK) {
        let min_delta = block.iter().copied().min().unwrap_or_default();
        push_zigzag(&mut bytes, min_delta);
        let rest: Vec<u64> = block.iter().map(|delta| delta.wrapping_sub(min_delta).cast_unsigned()).collect();
        let widths: Vec<u32> = rest.chunks(MINIBLOCK).map(bits_of_largest).collect();
        bytes.extend((0..MINIBLOCKS).map(|index| widths.get(index).map_or(0, |width| width.to_le_bytes()[0])));
        for (miniblock, width) in rest.chunks(MINIBLOCK).zip(widths) {
            let mut packer = BitPacker::new(&mut bytes, width);
            packer.extend(miniblock.iter().copied());
            packer.extend((miniblock.len()..MINIBLOCK).map(|_| 0)); // the last one is padded
            packer.finish();
        }
    }
    bytes
}

/// The bits that the largest of `values` needs.
pub(super) fn bits_of_largest(values: &[u64]) -> u32 {
    u64::BITS - values.iter().copied().max().unwrap_or_default().leading_zeros()
}

/// The hybrid of run lengths and bit packing, all of it packed in `width` bits.
pub(super) fn packed_indexes(indexes: &[u32], width: u32) -> Vec<u8> {
    const GROUP: usize = 8;
    let groups = indexes.len().div_ceil(GROUP);
    let mut bytes = vec![width.to_le_bytes()[0]];
    push_varint(&mut bytes, (groups as u64) << 1 | 1);
    let mut packer = BitPacker::new(&mut bytes, width);
    packer.extend(indexes.iter().map(|index| u64::from(*index)));
    packer.extend((indexes.len()..groups * GROUP).map(|_| 0));
    packer.finish();
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
    let mut packer = BitPacker::new(&mut bytes, 1);
    packer.extend(flags.iter().map(|flag| u64::from(*flag)));
    packer.finish();
    bytes
}

/// Appends values of `width` bits, lowest bit first.
struct BitPacker<'b> {
    bytes: &'b mut Vec<u8>,
    width: u32,
    pending: u128,
    pending_bits: u32,
}

impl<'b> BitPacker<'b> {
    fn new(bytes: &'b mut Vec<u8>, width: u32) -> Self {
        Self { bytes, width, pending: 0, pending_bits: 0 }
    }

    fn extend(&mut self, values: impl IntoIterator<Item = u64>) {
        for value in values {
            self.pending |= u128::from(value) << self.pending_bits;
            self.pending_bits += self.width;
            while self.pending_bits >= 8 {
                self.bytes.push(self.pending.to_le_bytes()[0]);
                self.pending >>= 8;
                self.pending_bits -= 8;
            }
        }
    }

    fn finish(self) {
        if self.pending_bits > 0 {
            self.bytes.push(self.pending.to_le_bytes()[0]);
        }
    }
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
