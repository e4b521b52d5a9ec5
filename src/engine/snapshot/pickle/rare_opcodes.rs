//! Opcodes that are rare in snapshots: old forms of strings and numbers, imports and calls, stack manipulation.

use super::builder::Builder;
use super::bytes::{take_array, take_bytes, to_length};
use super::error::ErrorKind;
use super::machine::{Machine, may_grow};
use super::value::Value;
use super::{opcode as op, text};

impl<B: Builder> Machine<'_, B> {
    /// Runs an opcode that is rare in snapshots; returns the new position.
    pub(super) fn run_rare_opcode(&mut self, code: u8, bytes: &[u8], start: usize) -> Result<usize, ErrorKind> {
        let mut end = start;
        let pos = &mut end;
        match code {
            // Framing, constants and numbers.
            op::PROTO => match take_array(bytes, pos)? {
                [0..=5] => {}
                [protocol] => return Err(ErrorKind::Protocol(protocol)),
            },
            op::FRAME => {
                take_array::<8>(bytes, pos)?;
            }
            op::NONE => self.push(Value::NONE),
            op::NEWTRUE => self.push(Value::bool(true)),
            op::NEWFALSE => self.push(Value::bool(false)),
            op::INT => match text::take_line(bytes, pos)? {
                b"00" => self.push(Value::bool(false)),
                b"01" => self.push(Value::bool(true)),
                digits => self.push_long(&text::parse_integer(digits)?),
            },
            op::LONG => {
                let digits = text::take_line(bytes, pos)?;
                self.push_long(&text::parse_integer(digits.strip_suffix(b"L").unwrap_or(digits))?);
            }
            op::LONG4 => self.push_long(take_sized(code, bytes, pos)?),
            op::FLOAT => self.stack.push(self.builder.float(text::parse(text::take_line(bytes, pos)?)?)),
            op::BINFLOAT => self.stack.push(self.builder.float(f64::from_be_bytes(take_array(bytes, pos)?))),
            // Strings and bytes.
            op::STRING => self.push_text(&text::unescape_string(text::take_line(bytes, pos)?)?),
            op::UNICODE => self.stack.push(self.builder.text(&text::unescape_unicode(text::take_line(bytes, pos)?))),
            op::SHORT_BINSTRING | op::BINSTRING | op::BINUNICODE | op::BINUNICODE8 => {
                self.push_text(take_sized(code, bytes, pos)?);
            }
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                self.stack.push(self.builder.bytes(take_sized(code, bytes, pos)?));
            }
            // Tuples, lists, dicts and sets.
            op::EMPTY_TUPLE => self.push_tuple(0)?,
            op::TUPLE1 => self.push_tuple(1)?,
            op::TUPLE3 => self.push_tuple(3)?,
            op::TUPLE => {
                let from = self.pop_mark()?;
                self.push_tuple(self.stack.len().saturating_sub(from))?;
            }
            op::LIST | op::FROZENSET => {
                let from = self.pop_mark()?;
                let items = self.stack.get(from..).ok_or(ErrorKind::StackUnderflow)?;
                let value = match items {
                    [] => Value::EMPTY_LIST,
                    _ => self.builder.list(Value::EMPTY_LIST, items, code == op::LIST)?,
                };
                self.stack.truncate(from);
                self.push(value);
            }
            op::DICT => {
                let from = self.pop_mark()?;
                self.stack.insert(from.min(self.stack.len()), Value::EMPTY_DICT);
                self.fill(from + 1, true, true)?;
            }
            op::EMPTY_SET => self.push(Value::EMPTY_LIST),
            op::ADDITEMS => self.fill_from_mark(false, may_grow(bytes, *pos))?,
            op::APPEND => self.fill(self.stack.len().saturating_sub(1), false, true)?,
            op::SETITEM => self.fill(self.stack.len().saturating_sub(2), true, true)?,
            // Stack and memo.
            op::POP => {
                // POP discards an open MARK if nothing is above it.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            op::POP_MARK => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
            }
            op::DUP => {
                let top = *self.stack.last().ok_or(ErrorKind::StackUnderflow)?;
                if top.is_unfilled() && top.memo_slot().is_none() {
                    return Err(ErrorKind::Recursive);
                }
                let twin = if top.is_unfilled() { self.reference_unfilled(top)? } else { top };
                self.push(twin);
            }
            op::GET => {
                let id = text::parse(text::take_line(bytes, pos)?)?;
                self.get(u32::try_from(id).map_err(|_| ErrorKind::UnwrittenMemo(id))?)?;
            }
            op::PUT => self.put(text::parse(text::take_line(bytes, pos)?)?)?,
            op::BINPUT => self.put(take_array::<1>(bytes, pos)?[0].into())?,
            op::LONG_BINPUT => self.put(u32::from_le_bytes(take_array(bytes, pos)?).into())?,
            // Imports and calls: refused, except for the one allowed global.
            op::GLOBAL => {
                let module = String::from_utf8_lossy(text::take_line(bytes, pos)?);
                let name = String::from_utf8_lossy(text::take_line(bytes, pos)?);
                self.push_global(&module, &name)?;
            }
            op::STACK_GLOBAL => {
                let name = self.pop_text()?;
                let module = self.pop_text()?;
                self.push_global(&module, &name)?;
            }
            op::REDUCE => self.reduce()?,
            op::INST => {
                let module = text::excerpt(text::take_line(bytes, pos)?);
                let name = text::excerpt(text::take_line(bytes, pos)?);
                return Err(ErrorKind::Refused(format!("{module}.{name}")));
            }
            op::PERSID => {
                let id = text::excerpt(text::take_line(bytes, pos)?);
                return Err(ErrorKind::Refused(format!("persistent id {id}")));
            }
            op::BINPERSID => return Err(ErrorKind::Refused("a persistent id".to_owned())),
            op::OBJ | op::NEWOBJ | op::NEWOBJ_EX | op::BUILD => return Err(ErrorKind::Refused("an object".to_owned())),
            op::EXT1 | op::EXT2 | op::EXT4 => return Err(ErrorKind::Refused("a registered extension".to_owned())),
            op::NEXT_BUFFER | op::READONLY_BUFFER => {
                return Err(ErrorKind::Refused("an out-of-band buffer".to_owned()));
            }
            _ => return Err(ErrorKind::UnknownOpcode),
        }
        Ok(end)
    }
}

/// The bytes after their length, which `code` writes in one, four or eight bytes; advances `pos`.
fn take_sized<'a>(code: u8, bytes: &'a [u8], pos: &mut usize) -> Result<&'a [u8], ErrorKind> {
    let len = match code {
        op::SHORT_BINSTRING | op::SHORT_BINBYTES => take_array::<1>(bytes, pos)?[0].into(),
        op::BINSTRING | op::LONG4 => to_length(i32::from_le_bytes(take_array(bytes, pos)?))?,
        op::BINUNICODE | op::BINBYTES => to_length(u32::from_le_bytes(take_array(bytes, pos)?))?,
        _ => to_length(u64::from_le_bytes(take_array(bytes, pos)?))?,
    };
    take_bytes(bytes, pos, len)
}
