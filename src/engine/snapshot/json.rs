//! Reading JSON dumps of a snapshot, with the same [`Decoder`] as pickles.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::decode::Decoder;
use super::{Snapshot, SnapshotError};
use crate::base::units::counted;
use crate::snapshot::pickle::{Builder as _, Value};

/// The start of a report of oomscope, whose keys have other meanings than those of a snapshot.
const REPORT: &[u8] = b"{\n  \"schema\": \"oomscope/";

/// Reads a JSON snapshot.
pub(super) fn read(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    if bytes.starts_with(REPORT) {
        return Err(SnapshotError::NotSnapshot("it is a report of oomscope".to_owned()));
    }
    let decoder = RefCell::new(Decoder::new(bytes.len()));
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let root = ValueSeed(&decoder).deserialize(&mut reader).and_then(|root| {
        reader.end()?;
        Ok(root)
    });
    match root {
        Ok(root) => decoder.into_inner().finish(root),
        Err(error) => {
            let offset = match error.classify() {
                Category::Eof => bytes.len() as u64,
                _ => byte_offset(bytes, error.line(), error.column()),
            };
            let entries = counted(decoder.borrow().entries(), "complete trace entry");
            let message = format!("{error}; {entries} before it");
            Err(SnapshotError::Json { message, offset })
        }
    }
}

/// The byte offset of `serde_json`'s line and column, both counted from 1.
fn byte_offset(bytes: &[u8], line: usize, column: usize) -> u64 {
    let before: usize = bytes.split_inclusive(|b| *b == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column.saturating_sub(1)) as u64
}

/// Deserializes one JSON value into the decoder.
#[derive(Clone, Copy)]
struct ValueSeed<'a>(&'a RefCell<Decoder>);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a memory snapshot")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::int(value).unwrap_or_else(|| self.0.borrow_mut().wide_int(&value.to_le_bytes())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        let narrow = i64::try_from(value).ok().and_then(Value::int);
        Ok(narrow.unwrap_or_else(|| self.0.borrow_mut().wide_int(&u128::from(value).to_le_bytes())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.0.borrow_mut().float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.0.borrow_mut().text(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::NONE)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let mut list = Value::EMPTY_LIST;
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
            // In batches, as pickles do, so that a long list is not in memory twice.
            if items.len() == 1000 {
                list = self.0.borrow_mut().list(list, &items, true).map_err(Error::custom)?;
                items.clear();
            }
        }
        if items.is_empty() {
            return Ok(list);
        }
        self.0.borrow_mut().list(list, &items, false).map_err(Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(self)? {
            pairs.push(key);
            pairs.push(map.next_value_seed(self)?);
        }
        if pairs.is_empty() {
            return Ok(Value::EMPTY_DICT);
        }
        self.0.borrow_mut().dict(Value::EMPTY_DICT, &pairs, false).map_err(Error::custom)
    }
}
