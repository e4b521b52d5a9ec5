//! Opcodes that are rare in snapshots: old forms of strings and numbers, imports and calls, stack manipulation.

use super::builder::Builder;
use super::bytes::{take_array, take_bytes, to_length};
use super::error::ErrorKind;
use super::machine::{Machine, may_grow};
use super::opcode as op;
use super::text;
use super::value::Value;

impl<B: Builder> Machine<'_, B> {
    /// Runs an opcode that is rare in snapshots; returns the new position.
    pub(super) fn run_rare_opcode(&mut self, code: u8, mut pos: usize) -> Result<usize, ErrorKind> {
        self.run_number(code, &mut pos)?;
        Ok(pos)
    }

    /// Framing, constants and numbers.
    fn run_number(&mut self, code: u8, pos: &mut usize) -> Result<(), ErrorKind> {
        let bytes = self.bytes;
        match code {
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
            op::LONG4 => {
                let n = to_length(i32::from_le_bytes(take_array(bytes, pos)?))?;
                let digits = take_bytes(bytes, pos, n)?;
                self.push_long(digits);
            }
            op::FLOAT => {
                let value = text::parse_float(text::take_line(bytes, pos)?)?;
                let value = self.builder.float(value);
                self.push(value);
            }
            op::BINFLOAT => {
                let value = self.builder.float(f64::from_be_bytes(take_array(bytes, pos)?));
                self.push(value);
            }
            _ => self.run_string(code, pos)?,
        }
        Ok(())
    }

    /// Strings and bytes.
    fn run_string(&mut self, code: u8, pos: &mut usize) -> Result<(), ErrorKind> {
        let bytes = self.bytes;
        match code {
            op::STRING => {
                let unescaped = text::unescape_string(text::take_line(bytes, pos)?)?;
                self.push_text(&unescaped);
            }
            op::UNICODE => {
                let unescaped = text::unescape_unicode(text::take_line(bytes, pos)?);
                let value = self.builder.text(&unescaped);
                self.push(value);
            }
            op::SHORT_BINSTRING => {
                let [n] = take_array(bytes, pos)?;
                let raw = take_bytes(bytes, pos, usize::from(n))?;
                self.push_text(raw);
            }
            op::BINSTRING => {
                let n = to_length(i32::from_le_bytes(take_array(bytes, pos)?))?;
                let raw = take_bytes(bytes, pos, n)?;
                self.push_text(raw);
            }
            op::BINUNICODE => {
                let n = to_length(u32::from_le_bytes(take_array(bytes, pos)?))?;
                let utf8 = take_bytes(bytes, pos, n)?;
                self.push_text(utf8);
            }
            op::BINUNICODE8 => {
                let n = to_length(u64::from_le_bytes(take_array(bytes, pos)?))?;
                let utf8 = take_bytes(bytes, pos, n)?;
                self.push_text(utf8);
            }
            op::SHORT_BINBYTES => {
                let [n] = take_array(bytes, pos)?;
                self.push_bytes(pos, usize::from(n))?;
            }
            op::BINBYTES => {
                let n = to_length(u32::from_le_bytes(take_array(bytes, pos)?))?;
                self.push_bytes(pos, n)?;
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let n = to_length(u64::from_le_bytes(take_array(bytes, pos)?))?;
                self.push_bytes(pos, n)?;
            }
            _ => self.run_container(code, pos)?,
        }
        Ok(())
    }

    /// Tuples, lists, dicts and sets.
    fn run_container(&mut self, code: u8, pos: &mut usize) -> Result<(), ErrorKind> {
        let bytes = self.bytes;
        match code {
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
            op::ADDITEMS => self.append_items(may_grow(bytes, *pos))?,
            op::APPEND => self.fill(self.stack.len().saturating_sub(1), false, true)?,
            op::SETITEM => self.fill(self.stack.len().saturating_sub(2), true, true)?,
            _ => self.run_stack_or_memo(code, pos)?,
        }
        Ok(())
    }

    /// Stack and memo.
    fn run_stack_or_memo(&mut self, code: u8, pos: &mut usize) -> Result<(), ErrorKind> {
        let bytes = self.bytes;
        match code {
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
                let id = text::parse_index(text::take_line(bytes, pos)?)?;
                self.get(u32::try_from(id).map_err(|_| ErrorKind::UnwrittenMemo(id))?)?;
            }
            op::PUT => {
                let id = text::parse_index(text::take_line(bytes, pos)?)?;
                self.put(id)?;
            }
            op::BINPUT => {
                let [id] = take_array(bytes, pos)?;
                self.put(u64::from(id))?;
            }
            op::LONG_BINPUT => {
                let id = u32::from_le_bytes(take_array(bytes, pos)?);
                self.put(u64::from(id))?;
            }
            _ => self.run_import(code, pos)?,
        }
        Ok(())
    }

    /// Imports and calls: refused, except for the one allowed global.
    fn run_import(&mut self, code: u8, pos: &mut usize) -> Result<(), ErrorKind> {
        let bytes = self.bytes;
        match code {
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
            op::OBJ | op::NEWOBJ | op::NEWOBJ_EX | op::BUILD => {
                return Err(ErrorKind::Refused("an object".to_owned()));
            }
            op::EXT1 | op::EXT2 | op::EXT4 => {
                return Err(ErrorKind::Refused("a registered extension".to_owned()));
            }
            op::NEXT_BUFFER | op::READONLY_BUFFER => {
                return Err(ErrorKind::Refused("an out-of-band buffer".to_owned()));
            }
            _ => return Err(ErrorKind::UnknownOpcode),
        }
        Ok(())
    }
}
