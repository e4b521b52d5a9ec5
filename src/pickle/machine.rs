//! The pickle machine: one loop over the bytes, an explicit stack, marks and a memo.

use rustc_hash::FxHashSet;

use super::builder::Builder;
use super::error::{ErrorKind, PickleError};
use super::memo::Memo;
use super::opcode::{self as op};
use super::runs::{Runs, end_of_run};
use super::text;
use super::value::{Kind, Value};

/// How often progress is reported, in bytes.
const REPORT_EVERY: usize = 16 << 20;

/// What [`read`] found besides what the builder keeps.
#[derive(Debug, Clone, Copy)]
pub struct Pickle {
    /// The value that the pickle stands for.
    pub root: Value,
    /// Where the pickle ends: bytes after it were not read.
    pub end: u64,
}

/// Whether `bytes` begin like a binary pickle (PROTO and a protocol that exists).
pub fn looks_like_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [op::PROTO, 0..=5, ..])
}

/// Reads one pickle from the start of `bytes`.
///
/// `progress` is told the offset now and then.
///
/// # Errors
/// With the offset and the opcode, when the bytes are no pickle, end early, ask for code to run, or
/// hold something that `builder` refuses.
pub fn read<B: Builder>(
    bytes: &[u8],
    builder: &mut B,
    progress: &dyn Fn(u64),
) -> Result<Pickle, PickleError> {
    let last_text = (Vec::new(), builder.text(""));
    let mut machine = Machine {
        bytes,
        builder,
        last_text,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        runs: Runs::new(),
        lent: FxHashSet::default(),
    };
    machine.run(progress)
}

struct Machine<'a, B> {
    bytes: &'a [u8],
    builder: &'a mut B,
    stack: Vec<Value>,
    /// Heights of the stack at each open MARK.
    marks: Vec<usize>,
    memo: Memo,
    runs: Runs,
    /// The bytes of the string met last, and its value.
    last_text: (Vec<u8>, Value),
    /// Memo slots of containers that were referred to while still unfilled.
    lent: FxHashSet<u64>,
}

/// `n` bytes at `pos`, which moves past them.
#[inline]
fn take<'a>(bytes: &'a [u8], pos: &mut usize, n: usize) -> Result<&'a [u8], ErrorKind> {
    let end = pos.checked_add(n).ok_or(ErrorKind::AbsurdLength)?;
    let taken = bytes.get(*pos..end).ok_or(ErrorKind::Truncated)?;
    *pos = end;
    Ok(taken)
}

/// `N` bytes at `pos`, which moves past them.
#[inline]
fn array<const N: usize>(bytes: &[u8], pos: &mut usize) -> Result<[u8; N], ErrorKind> {
    let found = bytes.get(*pos..).and_then(|rest| rest.first_chunk::<N>());
    let array = *found.ok_or(ErrorKind::Truncated)?;
    *pos += N;
    Ok(array)
}

/// The integer of the first `n` bytes, at most 8, of little-endian two's complement.
#[inline]
fn sign_extend(word: [u8; 8], n: usize) -> i64 {
    match 8 * (8 - n) {
        64 => 0,
        unused => i64::from_le_bytes(word) << unused >> unused,
    }
}

fn length(n: impl TryInto<usize>) -> Result<usize, ErrorKind> {
    n.try_into().map_err(|_| ErrorKind::AbsurdLength)
}

impl<B: Builder> Machine<'_, B> {
    fn run(&mut self, progress: &dyn Fn(u64)) -> Result<Pickle, PickleError> {
        /// On to the next opcode, or the reason why not.
        macro_rules! go {
            ($done:expr) => {
                match $done {
                    Ok(()) => continue,
                    Err(kind) => kind,
                }
            };
        }
        macro_rules! push {
            ($value:expr) => {{
                self.stack.push($value);
                continue;
            }};
        }
        let bytes = self.bytes;
        let mut pos = 0;
        let mut report_at = REPORT_EVERY;
        loop {
            let start = pos;
            let at = |opcode, kind| PickleError { offset: start as u64, opcode, kind };
            let Some(&code) = bytes.get(pos) else {
                return Err(at(None, ErrorKind::Truncated));
            };
            pos += 1;
            // The frequent opcodes stand here, where `pos` stays in a register and success goes
            // straight to the next one.
            let kind = match code {
                op::LONG_BINGET => match array(bytes, &mut pos) {
                    Ok(id) => go!(self.get(u32::from_le_bytes(id))),
                    Err(kind) => kind,
                },
                op::BINGET => match array(bytes, &mut pos) {
                    Ok([id]) => go!(self.get(u32::from(id))),
                    Err(kind) => kind,
                },
                op::MEMOIZE => go!(self.memoize()),
                op::MARK => {
                    if start >= report_at {
                        progress(start as u64);
                        report_at = start + REPORT_EVERY;
                    }
                    let in_list =
                        self.stack.last().is_some_and(|top| top.kind() == Kind::EmptyList);
                    if in_list && let Some((end, value)) = self.runs.predict(bytes, pos) {
                        pos = end + 1;
                        go!(self.finish_list(value))
                    } else if in_list && let Some(end) = end_of_run(bytes, pos) {
                        let run = pos..end;
                        pos = end + 1;
                        go!(self.list_of_references(run))
                    } else {
                        self.marks.push(self.stack.len());
                        continue;
                    }
                }
                op::EMPTY_DICT => push!(Value::EMPTY_DICT),
                op::EMPTY_LIST => push!(Value::EMPTY_LIST),
                op::SETITEMS => go!(self.set_items()),
                op::APPENDS => go!(self.append_items()),
                op::BININT => match array(bytes, &mut pos) {
                    Ok(n) => push!(Value::small(i32::from_le_bytes(n))),
                    Err(kind) => kind,
                },
                op::BININT1 => match array(bytes, &mut pos) {
                    Ok([n]) => push!(Value::small(i32::from(n))),
                    Err(kind) => kind,
                },
                op::BININT2 => match array(bytes, &mut pos) {
                    Ok(n) => push!(Value::small(i32::from(u16::from_le_bytes(n)))),
                    Err(kind) => kind,
                },
                op::LONG1 => match bytes.get(pos..).and_then(<[u8]>::first_chunk::<9>) {
                    // Addresses and times: the integer and more bytes behind it.
                    Some(&[n @ 1..=7, word @ ..]) => {
                        pos += 1 + usize::from(n);
                        self.push_int(sign_extend(word, usize::from(n)));
                        continue;
                    }
                    _ => go!(array(bytes, &mut pos)
                        .and_then(|[n]: [u8; 1]| take(bytes, &mut pos, usize::from(n)))
                        .map(|digits| self.long(digits))),
                },
                op::SHORT_BINUNICODE => match array(bytes, &mut pos)
                    .and_then(|[n]: [u8; 1]| take(bytes, &mut pos, usize::from(n)))
                {
                    Ok(utf8) => {
                        self.text(utf8);
                        continue;
                    }
                    Err(kind) => kind,
                },
                op::TUPLE2 => go!(self.tuple_of(2)),
                op::STOP => match self.stack.pop() {
                    Some(root) => return Ok(Pickle { root, end: pos as u64 }),
                    None => ErrorKind::StackUnderflow,
                },
                _ => match self.rare(code, pos) {
                    Ok(next) => {
                        pos = next;
                        continue;
                    }
                    Err(kind) => kind,
                },
            };
            return Err(at(Some(code), kind));
        }
    }

    /// Every opcode that real snapshots hold few of; returns the new position.
    fn rare(&mut self, code: u8, mut pos: usize) -> Result<usize, ErrorKind> {
        let bytes = self.bytes;
        let pos = &mut pos;
        match code {
            op::PROTO => match array(bytes, pos)? {
                [0..=5] => {}
                [protocol] => return Err(ErrorKind::Protocol(protocol)),
            },
            op::FRAME => {
                array::<8>(bytes, pos)?;
            }
            op::NONE => self.push(Value::NONE),
            op::NEWTRUE => self.push(Value::bool(true)),
            op::NEWFALSE => self.push(Value::bool(false)),
            op::INT => match text::line(bytes, pos)? {
                b"00" => self.push(Value::bool(false)),
                b"01" => self.push(Value::bool(true)),
                digits => self.long(&text::integer(digits)?),
            },
            op::LONG => {
                let digits = text::line(bytes, pos)?;
                self.long(&text::integer(digits.strip_suffix(b"L").unwrap_or(digits))?);
            }
            op::LONG4 => {
                let n = length(i32::from_le_bytes(array(bytes, pos)?))?;
                let digits = take(bytes, pos, n)?;
                self.long(digits);
            }
            op::FLOAT => {
                let value = text::float(text::line(bytes, pos)?)?;
                let value = self.builder.float(value);
                self.push(value);
            }
            op::BINFLOAT => {
                let value = self.builder.float(f64::from_be_bytes(array(bytes, pos)?));
                self.push(value);
            }
            op::STRING => {
                let unescaped = text::unescape_string(text::line(bytes, pos)?)?;
                self.text(&unescaped);
            }
            op::UNICODE => {
                let unescaped = text::unescape_unicode(text::line(bytes, pos)?);
                let value = self.builder.text(&unescaped);
                self.push(value);
            }
            op::SHORT_BINSTRING => {
                let [n] = array(bytes, pos)?;
                let raw = take(bytes, pos, usize::from(n))?;
                self.text(raw);
            }
            op::BINSTRING => {
                let n = length(i32::from_le_bytes(array(bytes, pos)?))?;
                let raw = take(bytes, pos, n)?;
                self.text(raw);
            }
            op::BINUNICODE => {
                let n = length(u32::from_le_bytes(array(bytes, pos)?))?;
                let utf8 = take(bytes, pos, n)?;
                self.text(utf8);
            }
            op::BINUNICODE8 => {
                let n = length(u64::from_le_bytes(array(bytes, pos)?))?;
                let utf8 = take(bytes, pos, n)?;
                self.text(utf8);
            }
            op::SHORT_BINBYTES => {
                let [n] = array(bytes, pos)?;
                self.raw_bytes(pos, usize::from(n))?;
            }
            op::BINBYTES => {
                let n = length(u32::from_le_bytes(array(bytes, pos)?))?;
                self.raw_bytes(pos, n)?;
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let n = length(u64::from_le_bytes(array(bytes, pos)?))?;
                self.raw_bytes(pos, n)?;
            }
            op::EMPTY_TUPLE => self.tuple_of(0)?,
            op::TUPLE1 => self.tuple_of(1)?,
            op::TUPLE3 => self.tuple_of(3)?,
            op::TUPLE => {
                let from = self.pop_mark()?;
                self.tuple_of(self.stack.len().saturating_sub(from))?;
            }
            op::LIST | op::FROZENSET => {
                let from = self.pop_mark()?;
                let items = self.stack.get(from..).ok_or(ErrorKind::StackUnderflow)?;
                let value = match items {
                    [] => Value::EMPTY_LIST,
                    _ => self.builder.list(Value::EMPTY_LIST, items)?,
                };
                self.stack.truncate(from);
                self.push(value);
            }
            op::DICT => {
                let from = self.pop_mark()?;
                self.stack.insert(from.min(self.stack.len()), Value::EMPTY_DICT);
                self.fill(from + 1, true)?;
            }
            op::EMPTY_SET => self.push(Value::EMPTY_LIST),
            op::ADDITEMS => self.append_items()?,
            op::APPEND => self.fill(self.stack.len().saturating_sub(1), false)?,
            op::SETITEM => self.fill(self.stack.len().saturating_sub(2), true)?,
            op::POP => {
                // POP discards an open MARK when nothing lies above it.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.stack.pop().ok_or(ErrorKind::StackUnderflow)?;
                }
            }
            op::POP_MARK => {
                let from = self.pop_mark()?;
                self.stack.truncate(from);
            }
            op::DUP => match self.stack.last() {
                Some(top) if top.is_unfilled() && top.home().is_none() => {
                    return Err(ErrorKind::Recursive);
                }
                Some(&top) => self.push(top),
                None => return Err(ErrorKind::StackUnderflow),
            },
            op::GET => {
                let id = text::index(text::line(bytes, pos)?)?;
                self.get(u32::try_from(id).map_err(|_| ErrorKind::NoMemo(id))?)?;
            }
            op::PUT => {
                let id = text::index(text::line(bytes, pos)?)?;
                self.put(id)?;
            }
            op::BINPUT => {
                let [id] = array(bytes, pos)?;
                self.put(u64::from(id))?;
            }
            op::LONG_BINPUT => {
                let id = u32::from_le_bytes(array(bytes, pos)?);
                self.put(u64::from(id))?;
            }
            op::GLOBAL => {
                let module = String::from_utf8_lossy(text::line(bytes, pos)?);
                let name = String::from_utf8_lossy(text::line(bytes, pos)?);
                self.global(&module, &name)?;
            }
            op::STACK_GLOBAL => {
                let name = self.pop_text()?;
                let module = self.pop_text()?;
                self.global(&module, &name)?;
            }
            op::REDUCE => self.reduce()?,
            op::INST => {
                let module = String::from_utf8_lossy(text::line(bytes, pos)?);
                let name = String::from_utf8_lossy(text::line(bytes, pos)?);
                return Err(ErrorKind::Refused(format!("{module}.{name}")));
            }
            op::PERSID => {
                let id = String::from_utf8_lossy(text::line(bytes, pos)?);
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
        Ok(*pos)
    }

    #[inline]
    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    #[inline]
    fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        let from = self.marks.pop().ok_or(ErrorKind::NoMark)?;
        // Opcodes that pop single values may have dug below the mark.
        if from > self.stack.len() { Err(ErrorKind::StackUnderflow) } else { Ok(from) }
    }

    fn text(&mut self, utf8: &[u8]) {
        // PyTorch writes the same compile context anew in every trace entry.
        let (last, value) = &self.last_text;
        if last == utf8 {
            return self.push(*value);
        }
        let value = match std::str::from_utf8(utf8) {
            Ok(text) => self.builder.text(text),
            // CPython writes lone surrogates (from undecodable file names) as they are.
            Err(_) => self.builder.text(&String::from_utf8_lossy(utf8)),
        };
        self.last_text.0.clear();
        self.last_text.0.extend_from_slice(utf8);
        self.last_text.1 = value;
        self.push(value);
    }

    fn raw_bytes(&mut self, pos: &mut usize, n: usize) -> Result<(), ErrorKind> {
        let value = self.builder.bytes(take(self.bytes, pos, n)?);
        self.push(value);
        Ok(())
    }

    /// An integer of little-endian two's complement `digits`; none stand for 0.
    fn long(&mut self, digits: &[u8]) {
        let mut word = [0; 8];
        if let Some(low) = word.get_mut(..digits.len()) {
            low.copy_from_slice(digits);
            self.push_int(sign_extend(word, digits.len()));
        } else {
            let value = self.builder.wide_int(digits);
            self.push(value);
        }
    }

    #[inline]
    fn push_int(&mut self, n: i64) {
        let value = Value::int(n).unwrap_or_else(|| self.builder.wide_int(&n.to_le_bytes()));
        self.push(value);
    }

    #[inline]
    fn get(&mut self, id: u32) -> Result<(), ErrorKind> {
        let value = match self.memo.get_plain(id) {
            Some(value) => value,
            None => self.recall(id)?,
        };
        self.push(value);
        Ok(())
    }

    #[cold]
    fn recall(&mut self, id: u32) -> Result<Value, ErrorKind> {
        let found = self.memo.get(id as usize).ok_or(ErrorKind::NoMemo(u64::from(id)))?;
        if found.is_unfilled() { self.lend(found) } else { Ok(found) }
    }

    /// An unfilled container is referred to: what it has become, or itself, noted as lent.
    fn lend(&mut self, value: Value) -> Result<Value, ErrorKind> {
        let Some(home) = value.home() else { return Ok(value) };
        let now = usize::try_from(home).ok().and_then(|home| self.memo.get(home));
        let now = now.ok_or(ErrorKind::NoMemo(home))?;
        if now.is_unfilled() {
            self.lent.insert(home);
        }
        Ok(now)
    }

    #[inline]
    fn memoize(&mut self) -> Result<(), ErrorKind> {
        let slot = self.memo.len();
        let top = self.stack.last_mut().ok_or(ErrorKind::StackUnderflow)?;
        if top.is_unfilled() && top.home().is_none() {
            *top = top.with_home(slot);
        }
        self.memo.push(*top);
        Ok(())
    }

    fn put(&mut self, id: u64) -> Result<(), ErrorKind> {
        if id == self.memo.len() {
            return self.memoize();
        }
        let top = self.stack.last_mut().ok_or(ErrorKind::StackUnderflow)?;
        if top.is_unfilled() && top.home().is_none() {
            *top = top.with_home(id);
        }
        // Picklers number the memo from 0 or 1 without gaps; a gap may cost no more than the file.
        match usize::try_from(id) {
            Ok(index) if index < self.bytes.len() => {
                if self.memo.put(index, *top) {
                    self.runs.clear();
                }
                Ok(())
            }
            _ => Err(ErrorKind::AbsurdMemo(id)),
        }
    }

    #[inline]
    fn append_items(&mut self) -> Result<(), ErrorKind> {
        let from = self.pop_mark()?;
        self.fill(from, false)
    }

    #[inline]
    fn set_items(&mut self) -> Result<(), ErrorKind> {
        let from = self.pop_mark()?;
        self.fill(from, true)
    }

    /// Puts the stack above `from` into the container just below it.
    #[inline]
    fn fill(&mut self, from: usize, is_dict: bool) -> Result<(), ErrorKind> {
        let below = from.checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        let (Some(&target), Some(items)) = (self.stack.get(below), self.stack.get(from..)) else {
            return Err(ErrorKind::StackUnderflow);
        };
        let value = match (items, is_dict) {
            ([], _) => target,
            (_, true) if items.len() % 2 == 1 => return Err(ErrorKind::OddPairs),
            (_, true) => self.builder.dict(target, items)?,
            (_, false) => self.builder.list(target, items)?,
        };
        self.stack.truncate(from);
        self.replace(below, target, value)
    }

    /// The unfilled container at `below` has become `value`: on the stack and in the memo.
    #[inline]
    fn replace(&mut self, below: usize, target: Value, value: Value) -> Result<(), ErrorKind> {
        if let Some(slot) = self.stack.get_mut(below) {
            *slot = value;
        }
        if target.is_unfilled()
            && let Some(home) = target.home()
        {
            if !self.lent.is_empty() && self.lent.contains(&home) {
                return Err(ErrorKind::Recursive);
            }
            self.memo.put(length(home)?, value);
        }
        Ok(())
    }

    /// MARK, the references at `run`, APPENDS: see [`super::runs`].
    #[inline]
    fn list_of_references(&mut self, run: std::ops::Range<usize>) -> Result<(), ErrorKind> {
        let from = self.stack.len();
        let target = *self.stack.last().ok_or(ErrorKind::StackUnderflow)?;
        let start = run.start;
        let raw = self.bytes.get(run).ok_or(ErrorKind::Truncated)?;
        let hash = self.runs.hash(raw);
        let known = hash.and_then(|hash| self.runs.find(self.bytes, raw, hash));
        let value = if let Some(value) = known {
            value
        } else {
            let mut pos = 0;
            while let Some(&code) = raw.get(pos) {
                pos += 1;
                let id = match code {
                    op::BINGET => u32::from(array::<1>(raw, &mut pos)?[0]),
                    _ => u32::from_le_bytes(array(raw, &mut pos)?),
                };
                self.get(id)?;
            }
            let items = self.stack.get(from..).ok_or(ErrorKind::StackUnderflow)?;
            let value = self.builder.list(target, items)?;
            self.stack.truncate(from);
            if let Some(hash) = hash
                && self.builder.is_shareable(value)
            {
                self.runs.insert(start, raw, hash, value);
            }
            value
        };
        self.finish_list(value)
    }

    /// The unfilled list on top of the stack has become `value`.
    #[inline]
    fn finish_list(&mut self, value: Value) -> Result<(), ErrorKind> {
        let below = self.stack.len().checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        let target = *self.stack.last().ok_or(ErrorKind::StackUnderflow)?;
        self.replace(below, target, value)
    }

    /// Makes a tuple of the topmost `n` values.
    #[inline]
    fn tuple_of(&mut self, n: usize) -> Result<(), ErrorKind> {
        let from = self.stack.len().checked_sub(n).ok_or(ErrorKind::StackUnderflow)?;
        let items = self.stack.get(from..).ok_or(ErrorKind::StackUnderflow)?;
        let callee = from.checked_sub(1).and_then(|below| self.stack.get(below));
        let value = match items {
            // The arguments of restore_type_tag stand for the first of them: see `reduce`.
            [first, _] if callee == Some(&Value::RESTORE_TYPE_TAG) => *first,
            _ => self.builder.tuple(items)?,
        };
        self.stack.truncate(from);
        self.push(value);
        Ok(())
    }

    fn pop_text(&mut self) -> Result<String, ErrorKind> {
        let value = self.stack.pop().ok_or(ErrorKind::StackUnderflow)?;
        Ok(self.builder.text_of(value).unwrap_or("?").to_owned())
    }

    /// The only global that a snapshot may name is the type tag of PyTorch's C++ pickler.
    fn global(&mut self, module: &str, name: &str) -> Result<(), ErrorKind> {
        if (module, name) == ("torch.jit._pickle", "restore_type_tag") {
            self.push(Value::RESTORE_TYPE_TAG);
            Ok(())
        } else {
            Err(ErrorKind::Refused(format!("{module}.{name}")))
        }
    }

    fn reduce(&mut self) -> Result<(), ErrorKind> {
        let argument = self.stack.pop().ok_or(ErrorKind::StackUnderflow)?;
        match self.stack.pop() {
            Some(Value::RESTORE_TYPE_TAG) => {
                self.push(argument);
                Ok(())
            }
            Some(_) => Err(ErrorKind::Refused("a call".to_owned())),
            None => Err(ErrorKind::StackUnderflow),
        }
    }
}
