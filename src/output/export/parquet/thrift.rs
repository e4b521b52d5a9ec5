//! Structs of Thrift's compact protocol: the metadata of Parquet.

use super::super::protobuf::push_varint;

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

pub(super) fn push_zigzag(bytes: &mut Vec<u8>, value: i64) {
    push_varint(bytes, (value << 1 ^ value >> 63).cast_unsigned());
}
