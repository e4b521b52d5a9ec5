//! Messages of Protocol Buffers: numbered fields, written by hand.

/// A message under construction.
#[derive(Debug, Default, Clone)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// Wire types.
const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn tag(&mut self, field: u32, wire_type: u64) {
        push_varint(&mut self.bytes, u64::from(field) << 3 | wire_type);
    }

    pub(super) fn unsigned(mut self, field: u32, value: u64) -> Self {
        self.tag(field, VARINT);
        push_varint(&mut self.bytes, value);
        self
    }

    pub(super) fn string(self, field: u32, text: &str) -> Self {
        self.delimited(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.delimited(field, &message.bytes)
    }

    fn delimited(mut self, field: u32, bytes: &[u8]) -> Self {
        self.tag(field, LENGTH_DELIMITED);
        push_varint(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }
}

/// LEB128, as in Protocol Buffers and in Thrift's compact protocol.
pub(in crate::output) fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// The same for a number with a sign, which is in the lowest bit.
pub(in crate::output) fn push_zigzag(bytes: &mut Vec<u8>, value: i64) {
    push_varint(bytes, (value << 1 ^ value >> 63).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_encoded_as_the_specification_shows() {
        let message = Message::new().unsigned(1, 150).string(2, "testing").unsigned(3, u64::MAX);
        let mut expected = vec![0x08, 0x96, 0x01, 0x12, 0x07];
        expected.extend(b"testing");
        expected.push(0x18);
        expected.extend([0xff; 9]);
        expected.push(0x01);
        assert_eq!(message.as_bytes(), expected);
    }
}
