//! The interface between the machine and the owner of the values.

use super::error::ErrorKind;
use super::value::Value;

/// Numbers of integers and of other values of a record.
pub(super) const INTEGERS: usize = 4;
pub(super) const VALUES: usize = 7;

/// A dict, by the meaning of its keys.
pub struct Record {
    /// 0 for those that the dict lacks.
    pub integers: [u64; INTEGERS],
    /// [`Record::ABSENT`] for those that the dict lacks.
    pub values: [Value; VALUES],
}

/// The index of a value in [`Record::integers`] or [`Record::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Integer(usize),
    Value(usize),
}

impl Record {
    /// No value is this one.
    pub const ABSENT: Value = Value::EMPTY_DICT;
}

/// Builds values from the contents of a pickle.
///
/// Containers arrive in one call if the pickle writes them in one piece, else in parts. `so_far` is an empty list or
/// dict for the first part, and for later parts the value that the builder returned for the first. That value
/// represents the container on the stack and in the memo. So if the container `may_grow`, it must be a value to which
/// later parts can be added, and these must return the same value. An error ends the reading; the machine adds the
/// position.
pub trait Builder {
    /// A string. Invalid UTF-8 is replaced by U+FFFD.
    fn text(&mut self, text: &str) -> Value;
    /// A `bytes` or `bytearray`.
    fn bytes(&mut self, bytes: &[u8]) -> Value;
    /// An integer wider than 60 bits: little-endian two's complement, never empty.
    fn wide_int(&mut self, bytes: &[u8]) -> Value;
    fn float(&mut self, value: f64) -> Value;
    /// A complete tuple.
    fn tuple(&mut self, items: &[Value]) -> Result<Value, ErrorKind>;
    /// Adds `items` to a list or set.
    fn list(&mut self, so_far: Value, items: &[Value], may_grow: bool) -> Result<Value, ErrorKind>;
    /// Adds `pairs` (key, value, key, value, ...) to a dict. Their number is even.
    fn dict(&mut self, so_far: Value, pairs: &[Value], may_grow: bool) -> Result<Value, ErrorKind>;

    /// The place of each of `keys` in a record, all different, if the builder makes records of dicts with these keys.
    fn accept_keys(&mut self, keys: &[Value]) -> Option<Vec<Place>> {
        let _ = keys;
        None
    }
    /// A complete dict of accepted keys. If the builder returns `None`, it receives the dict again, by
    /// [`Builder::dict`].
    fn record(&mut self, record: &Record) -> Option<Value> {
        let _ = record;
        None
    }

    /// Called with the length of each piece of input: see [`super::read_pieces`].
    fn add_input(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Called from time to time with the bytes that the machine's own tables take.
    ///
    /// # Errors
    /// If that is too much memory, together with the builder's values.
    fn check_memory(&self, machine_bytes: u64) -> Result<(), ErrorKind> {
        let _ = machine_bytes;
        Ok(())
    }

    /// The string `value`, if it is one.
    fn text_of(&self, value: Value) -> Option<&str>;

    /// Whether `value` may be reused for another list with the same items. Only for values that never change and have
    /// no identity.
    fn is_shareable(&self, value: Value) -> bool {
        let _ = value;
        false
    }
}
