//! Dicts that are written like an earlier dict, read in one go: see [`super::layouts`].
//!
//! A trace entry is a dict of about ten memo references to keys, always the same, each with a value of a few bytes. If
//! the builder accepts the keys of a dict, its layout is learned. A later dict with the same bytes between its values is
//! decoded without the stack, and the builder receives its values together. The machine changes only after the whole
//! dict has been decoded. Any other dict is read opcode by opcode, which also reports its errors.

use super::builder::Builder;
use super::bytes::sign_extend;
use super::layouts::{Field, Last, Layout, MAX_BYTES, Start, operand};
use super::machine::{Machine, may_grow};
use super::memo::Memo;
use super::opcode as op;
use super::value::Value;

impl<B: Builder> Machine<'_, B> {
    /// Reads the dict whose `EMPTY_DICT` ends at `start`, if it is written like an earlier one. Returns the position after
    /// it.
    #[inline]
    pub(super) fn read_dict_by_layout(&mut self, start: usize) -> Option<usize> {
        let bytes = self.bytes;
        let rest = bytes.get(start..)?.strip_prefix(&[op::MEMOIZE, op::MARK])?.first_chunk::<MAX_BYTES>()?;
        if self.memo.has_gaps() {
            return None;
        }
        let Some(index) = self.layouts.find(rest) else {
            if self.layouts.is_worth_learning() {
                self.learn_layout(rest);
            }
            return None;
        };
        self.layouts.set_last(index);
        let layout = self.layouts.get_mut(index)?;
        let mut end = start + 2 + layout.len;
        for (value, field) in layout.values.iter_mut().zip(&mut layout.fields) {
            *value = decode_field(field, rest, &self.memo, self.builder)?;
        }
        if layout.has_list {
            let (list_end, list) = self.read_references(end)?;
            if bytes.get(list_end) != Some(&op::SETITEMS) {
                return None;
            }
            end = list_end + 1;
            *self.layouts.get_mut(index)?.values.last_mut()? = list;
        }
        if may_grow(bytes, end) {
            return None;
        }
        let layout = self.layouts.get(index)?;
        let record = self.builder.record(layout.keys, &layout.values)?;
        self.memo.push(record);
        for field in &layout.memoized {
            self.memo.push(*layout.values.get(*field)?);
        }
        self.push(record);
        Some(end)
    }

    fn learn_layout(&mut self, rest: &Start) {
        if let Some((keys, mut layout)) = Layout::read(rest, &self.memo)
            && let Some(keys) = self.builder.accept_keys(&keys)
        {
            layout.keys = keys;
            self.layouts.add(layout);
        }
    }
}

/// The value of `field` in the dict that starts with `rest`; any value for a list.
#[inline]
fn decode_field(field: &mut Field, rest: &Start, memo: &Memo, builder: &mut impl Builder) -> Option<Value> {
    Some(match field {
        Field::None | Field::List => Value::NONE,
        Field::ShortReference(at) => memo.get_plain(operand::<1>(rest, *at)?[0].into())?,
        Field::LongReference(at) => memo.get_plain(u32::from_le_bytes(operand(rest, *at)?))?,
        Field::Int1(at) => Value::from_i32(operand::<1>(rest, *at)?[0].into()),
        Field::Int2(at) => Value::from_i32(u16::from_le_bytes(operand(rest, *at)?).into()),
        Field::Int4(at) => Value::from_i32(i32::from_le_bytes(operand(rest, *at)?)),
        Field::Long(at, len) => Value::int(sign_extend(operand(rest, *at)?, usize::from(*len)))?,
        Field::Text(at, len, last) => repeat_or_make(last, low_bytes(rest, *at, *len), || {
            let start = usize::from(*at);
            let text = rest.get(start..start + usize::from(*len))?;
            Some(builder.text(std::str::from_utf8(text).ok()?))
        })?,
        Field::Pair(at, last) => repeat_or_make(last, low_bytes(rest, *at, 3), || {
            let [first, _, second] = operand::<3>(rest, *at)?;
            builder.tuple(&[first, second].map(|item| Value::from_i32(item.into()))).ok()
        })?,
    })
}

/// The `len` bytes at `at`, if they fit in a word.
#[inline]
fn low_bytes(rest: &Start, at: u8, len: u8) -> Option<u64> {
    let unused = 64_u32.checked_sub(8 * u32::from(len))?;
    u64::from_le_bytes(operand(rest, at)?).checked_shl(unused)
}

/// The value that `make` returns; the last one if the bytes are equal.
#[inline]
fn repeat_or_make(last: &mut Last, word: Option<u64>, make: impl FnOnce() -> Option<Value>) -> Option<Value> {
    match (&last, word) {
        (Some((known, value)), Some(word)) if *known == word => return Some(*value),
        _ => {}
    }
    let value = make()?;
    *last = word.map(|word| (word, value));
    Some(value)
}
