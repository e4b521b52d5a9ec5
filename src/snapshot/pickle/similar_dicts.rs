//! Dicts that have the keys of an earlier dict, read in one go.
//!
//! A trace entry is a dict of about ten memo references to keys, always the same, each with a value of a few bytes. Once
//! the builder has accepted the keys of one dict, a dict with the same references is decoded without the stack, and the
//! builder receives its values together. The machine changes only after the whole dict has been decoded. Any other dict
//! is read opcode by opcode, which also reports its errors.

use super::accepted_keys::{AcceptedKeys, Key, MAX_KEYS, Prefix, WORD};
use super::builder::Builder;
use super::bytes::sign_extend;
use super::machine::{Machine, may_grow};
use super::opcode as op;
use super::reference_runs::find_run_end;
use super::value::Value;

/// The length of the value at the start of `rest`, if [`Machine::decode_value`] can decode it.
fn value_len(rest: &[u8]) -> Option<usize> {
    Some(match rest {
        [op::NONE, ..] => 1,
        [op::BININT1, _, op::BININT1, _, op::TUPLE2, op::MEMOIZE, ..] => 6,
        [op::BINGET | op::BININT1, ..] => 2,
        [op::BININT2, ..] => 3,
        [op::LONG_BINGET | op::BININT, ..] => 5,
        [op::LONG1, n @ 1..=7, ..] => 2 + usize::from(*n),
        [op::SHORT_BINUNICODE, n, ..] if rest.get(2 + usize::from(*n)) == Some(&op::MEMOIZE) => 3 + usize::from(*n),
        [op::EMPTY_LIST, op::MEMOIZE, op::MARK, ..] => find_run_end(rest, 3)? + 1,
        _ => return None,
    })
}

impl<B: Builder> Machine<'_, B> {
    /// Reads the items of the dict on top of the stack, from the MARK that ends at `start`, if it has the accepted keys
    /// or the first of them. Returns the position after SETITEMS.
    #[inline]
    pub(super) fn read_similar_dict(&mut self, start: usize) -> Option<usize> {
        let below = self.stack.len().checked_sub(1)?;
        let target = *self.stack.last()?;
        if self.memo.has_gaps() || self.check_above_mark(below).is_err() {
            return None;
        }
        let mut accepted = std::mem::take(&mut self.accepted_keys);
        // The dict may contain itself.
        let end = self.decode_dict(&mut accepted, start).filter(|_| !self.is_referenced(target));
        let record = end.and_then(|_| self.builder.record(&accepted.values));
        if let Some(record) = record {
            accepted.misses = 0;
            accepted.memoized.iter().for_each(|value| self.memo.push(*value));
            let replaced = self.replace(below, target, record);
            debug_assert!(replaced.is_ok(), "the dict has no items and no reference");
        } else if accepted.is_worth_learning() {
            self.accept_keys(&mut accepted, start);
        }
        self.accepted_keys = accepted;
        record.and(end)
    }

    /// Decodes the items at `start` into the buffers of `accepted`. Returns the position after SETITEMS.
    #[inline]
    fn decode_dict(&mut self, accepted: &mut AcceptedKeys, start: usize) -> Option<usize> {
        let AcceptedKeys { keys, values, memoized, .. } = accepted;
        values.clear();
        memoized.clear();
        let mut pos = start;
        for key in keys {
            let word = u128::from_le_bytes(*self.bytes.get(pos..)?.first_chunk::<WORD>()?);
            if let Some((prefix, value)) = &key.with_value
                && prefix.matches(word)
            {
                values.push(*value);
                memoized.push(*value);
                pos += prefix.len;
                continue;
            }
            if !key.reference.matches(word) {
                break;
            }
            let (value, end, is_memoized) = self.decode_value(pos + key.reference.len)?;
            values.push(value);
            if is_memoized {
                memoized.push(value);
                let prefix = self.bytes.get(pos..end).and_then(Prefix::new);
                key.with_value = prefix.map(|prefix| (prefix, value));
            }
            pos = end;
        }
        let is_complete = self.bytes.get(pos) == Some(&op::SETITEMS) && !may_grow(self.bytes, pos + 1);
        is_complete.then_some(pos + 1)
    }

    /// The value at `pos`, the position after it, and whether it was memoized.
    #[inline]
    fn decode_value(&mut self, pos: usize) -> Option<(Value, usize, bool)> {
        let rest = self.bytes.get(pos..)?;
        let (code, operand) = (*rest.first()?, rest.get(1..)?.first_chunk::<8>()?);
        let [byte, _, third, ..] = *operand;
        let int = |n: i64| Value::int(n);
        let plain = |value: Option<Value>, len: usize| Some((value?, pos + len, false));
        match code {
            op::BINGET => plain(self.read_memo(byte.into()).ok(), 2),
            op::LONG_BINGET => plain(self.read_memo(u32::from_le_bytes(*operand.first_chunk()?)).ok(), 5),
            op::LONG1 if matches!(byte, 1..=7) => {
                let digits = (u64::from_le_bytes(*operand) >> 8).to_le_bytes();
                plain(int(sign_extend(digits, byte.into())), 2 + usize::from(byte))
            }
            op::BININT1 if matches!(operand, [_, op::BININT1, _, op::TUPLE2, op::MEMOIZE, ..]) => {
                let pair = [int(byte.into())?, int(third.into())?];
                Some((self.builder.tuple(&pair).ok()?, pos + 6, true))
            }
            op::BININT1 => plain(int(byte.into()), 2),
            op::BININT2 => plain(int(u16::from_le_bytes(*operand.first_chunk()?).into()), 3),
            op::BININT => plain(int(i32::from_le_bytes(*operand.first_chunk()?).into()), 5),
            op::NONE => plain(Some(Value::NONE), 1),
            op::SHORT_BINUNICODE => {
                let len = value_len(rest)?;
                let text = std::str::from_utf8(rest.get(2..len - 1)?).ok()?;
                Some((self.builder.text(text), pos + len, true))
            }
            op::EMPTY_LIST if operand.starts_with(&[op::MEMOIZE, op::MARK]) => {
                let (end, value) = self.read_references(pos + 3)?;
                Some((value, end, true))
            }
            _ => None,
        }
    }

    /// Asks the builder to accept the keys of the dict whose items start at `start`.
    fn accept_keys(&mut self, accepted: &mut AcceptedKeys, start: usize) -> Option<()> {
        let (mut keys, mut names, mut pos) = (Vec::new(), Vec::new(), start);
        while *self.bytes.get(pos)? != op::SETITEMS {
            if keys.len() == MAX_KEYS {
                return None;
            }
            let rest = self.bytes.get(pos..)?;
            let (slot, len) = match *rest {
                [op::BINGET, slot, ..] => (slot.into(), 2),
                [op::LONG_BINGET, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]), 5),
                _ => return None,
            };
            names.push(self.memo.get_plain(slot)?);
            keys.push(Key { reference: Prefix::new(rest.get(..len)?)?, with_value: None });
            pos += len + value_len(rest.get(len..)?)?;
        }
        if self.builder.accept_keys(&names) {
            accepted.keys = keys;
        }
        Some(())
    }
}
