//! What the machine asks of whoever keeps the values.

use super::error::ErrorKind;
use super::value::Value;

/// Makes values out of what a pickle contains.
///
/// Containers arrive whole where the pickle writes them whole, else in parts: `so_far` is what the
/// builder returned for the first part, or an empty list or dict. What is returned for the first part
/// stands for the container on the stack and in the memo from then on, so when it `may_grow` it must
/// be a value that later parts can be added to: for those the same value is returned again. An error
/// ends the reading; the machine adds the place.
pub trait Builder {
    /// A string. Bytes that are not UTF-8 have been replaced by U+FFFD.
    fn text(&mut self, text: &str) -> Value;
    /// A `bytes` or `bytearray`.
    fn bytes(&mut self, bytes: &[u8]) -> Value;
    /// An integer beyond 60 bits: little-endian two's complement, never empty.
    fn wide_int(&mut self, bytes: &[u8]) -> Value;
    /// A float.
    fn float(&mut self, value: f64) -> Value;
    /// A tuple, whole.
    fn tuple(&mut self, items: &[Value]) -> Result<Value, ErrorKind>;
    /// Adds `items` to a list or set.
    fn list(&mut self, so_far: Value, items: &[Value], may_grow: bool) -> Result<Value, ErrorKind>;
    /// Adds `pairs` (key, value, key, value, ...; an even number) to a dict.
    fn dict(&mut self, so_far: Value, pairs: &[Value], may_grow: bool) -> Result<Value, ErrorKind>;

    /// The string that `value` is, if it is one.
    fn text_of(&self, value: Value) -> Option<&str>;

    /// Whether a list with the same items may be answered with `value` again without being built.
    /// True only for values that can never change and stand for their content alone.
    fn is_shareable(&self, value: Value) -> bool {
        let _ = value;
        false
    }
}
