//! The pickle machine: one loop over the bytes, an explicit stack, marks and a memo.

use rustc_hash::FxHashSet;

use super::builder::Builder;
use super::bytes::{array, length, sign_extend, take};
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
        has_aliases: false,
    };
    machine.run(progress)
}

pub(super) struct Machine<'a, B> {
    pub(super) bytes: &'a [u8],
    pub(super) builder: &'a mut B,
    pub(super) stack: Vec<Value>,
    /// Heights of the stack at each open MARK.
    pub(super) marks: Vec<usize>,
    memo: Memo,
    runs: Runs,
    /// The bytes of the string met last, and its value.
    last_text: (Vec<u8>, Value),
    /// Memo slots of containers that were referred to while still unfilled.
    lent: FxHashSet<u64>,
    /// Whether an unfilled container was put in more than one slot.
    has_aliases: bool,
}

/// How many items picklers write at a time. One that is left over follows without a MARK.
const BATCH: usize = 1000;

/// Whether the next part of a list or dict follows at `pos`.
#[inline]
pub(super) fn may_grow(bytes: &[u8], pos: usize) -> bool {
    bytes.get(pos) == Some(&op::MARK)
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
                    if in_list
                        && let Some((end, value)) = self.runs.predict(bytes, pos)
                        && !may_grow(bytes, end + 1)
                        && self.finish_list(value).is_ok()
                    {
                        pos = end + 1;
                        continue;
                    }
                    if in_list
                        && let Some(end) = end_of_run(bytes, pos)
                        && !may_grow(bytes, end + 1)
                        && self.list_of_references(pos..end).is_ok()
                    {
                        pos = end + 1;
                        continue;
                    }
                    // After an error in a run too: opcode by opcode it comes again, in its place.
                    self.marks.push(self.stack.len());
                    continue;
                }
                op::EMPTY_DICT => push!(Value::EMPTY_DICT),
                op::EMPTY_LIST => push!(Value::EMPTY_LIST),
                op::SETITEMS => go!(self.set_items(may_grow(bytes, pos))),
                op::APPENDS => go!(self.append_items(may_grow(bytes, pos))),
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
                op::STOP => match self.pop() {
                    Ok(root) => return Ok(Pickle { root, end: pos as u64 }),
                    Err(kind) => kind,
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

    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    /// Takes the topmost value, which must lie above the last MARK.
    pub(super) fn pop(&mut self) -> Result<Value, ErrorKind> {
        let below = self.stack.len().checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(below)?;
        self.stack.pop().ok_or(ErrorKind::StackUnderflow)
    }

    /// Whether `height` lies above the last MARK: opcodes take nothing from below it.
    #[inline]
    fn check_above_mark(&self, height: usize) -> Result<(), ErrorKind> {
        match self.marks.last() {
            Some(mark) if *mark > height => Err(ErrorKind::StackUnderflow),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        self.marks.pop().ok_or(ErrorKind::NoMark)
    }

    pub(super) fn text(&mut self, utf8: &[u8]) {
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

    pub(super) fn raw_bytes(&mut self, pos: &mut usize, n: usize) -> Result<(), ErrorKind> {
        let value = self.builder.bytes(take(self.bytes, pos, n)?);
        self.push(value);
        Ok(())
    }

    /// An integer of little-endian two's complement `digits`; none stand for 0.
    pub(super) fn long(&mut self, digits: &[u8]) {
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
    pub(super) fn get(&mut self, id: u32) -> Result<(), ErrorKind> {
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
    pub(super) fn lend(&mut self, value: Value) -> Result<Value, ErrorKind> {
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
        if self.memo.has_gaps() {
            return self.put(self.memo.written());
        }
        let slot = self.memo.len();
        let top = self.stack.last_mut().ok_or(ErrorKind::StackUnderflow)?;
        if top.is_unfilled() {
            if top.home().is_none() {
                *top = top.with_home(slot);
            } else {
                self.has_aliases = true;
            }
        }
        self.memo.push(*top);
        Ok(())
    }

    pub(super) fn put(&mut self, id: u64) -> Result<(), ErrorKind> {
        if id == self.memo.len() && !self.memo.has_gaps() {
            return self.memoize();
        }
        // Picklers number the memo from 0 or 1 without gaps; a gap may cost no more than the file.
        let index = match usize::try_from(id) {
            Ok(index) if index < self.bytes.len() => index,
            _ => return Err(ErrorKind::AbsurdMemo(id)),
        };
        let top = self.stack.last_mut().ok_or(ErrorKind::StackUnderflow)?;
        if let Some(old) = self.memo.get(index)
            && old != *top
            && (old.is_unfilled() || self.has_aliases)
        {
            return Err(ErrorKind::MemoReused(id));
        }
        if top.is_unfilled() {
            if top.home().is_none() {
                *top = top.with_home(id);
            } else {
                self.has_aliases |= top.home() != Some(id);
            }
        }
        if self.memo.put(index, *top) {
            self.runs.clear();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn append_items(&mut self, may_grow: bool) -> Result<(), ErrorKind> {
        let from = self.pop_mark()?;
        self.fill(from, false, may_grow)
    }

    #[inline]
    fn set_items(&mut self, may_grow: bool) -> Result<(), ErrorKind> {
        let from = self.pop_mark()?;
        self.fill(from, true, may_grow)
    }

    /// Puts the stack above `from` into the container just below it.
    #[inline]
    pub(super) fn fill(
        &mut self,
        from: usize,
        is_dict: bool,
        may_grow: bool,
    ) -> Result<(), ErrorKind> {
        let below = from.checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(below)?;
        let (Some(&target), Some(items)) = (self.stack.get(below), self.stack.get(from..)) else {
            return Err(ErrorKind::StackUnderflow);
        };
        let may_grow = may_grow || items.len() >= BATCH;
        let value = match (items, is_dict) {
            ([], _) => target,
            (_, true) if items.len() % 2 == 1 => return Err(ErrorKind::OddPairs),
            (_, true) => self.builder.dict(target, items, may_grow)?,
            (_, false) => self.builder.list(target, items, may_grow)?,
        };
        self.stack.truncate(from);
        self.replace(below, target, value)
    }

    /// The unfilled container at `below` has become `value`: on the stack and in the memo.
    #[inline]
    fn replace(&mut self, below: usize, target: Value, value: Value) -> Result<(), ErrorKind> {
        if target.is_unfilled() {
            if let Some(home) = target.home() {
                if !self.lent.is_empty() && self.lent.contains(&home) {
                    return Err(ErrorKind::Recursive);
                }
                self.memo.put(length(home)?, value);
            }
        } else if value != target {
            // The memo cannot be told: other slots may hold a list of the same content.
            return Err(ErrorKind::Recursive);
        }
        if let Some(slot) = self.stack.get_mut(below) {
            *slot = value;
        }
        Ok(())
    }

    /// MARK, the references at `run`, APPENDS: see [`super::runs`]. On an error the stack is as before;
    /// a list that may grow is one.
    #[inline]
    fn list_of_references(&mut self, run: std::ops::Range<usize>) -> Result<(), ErrorKind> {
        let from = self.stack.len();
        let target = *self.stack.last().ok_or(ErrorKind::StackUnderflow)?;
        let start = run.start;
        let raw = self.bytes.get(run).ok_or(ErrorKind::Truncated)?;
        let hash = self.runs.hash(raw);
        let known = hash.and_then(|hash| self.runs.find(self.bytes, start, raw, hash));
        let value = if let Some(value) = known {
            value
        } else {
            let gotten = self.get_all(raw);
            let value = gotten.and_then(|()| match self.stack.get(from..) {
                Some(items) if items.len() < BATCH => self.builder.list(target, items, false),
                _ => Err(ErrorKind::AbsurdLength),
            });
            self.stack.truncate(from);
            let value = value?;
            if let Some(hash) = hash
                && self.builder.is_shareable(value)
            {
                self.runs.insert(self.bytes, start, raw, hash, value);
            }
            value
        };
        self.finish_list(value)
    }

    /// Pushes what the references of `run` refer to.
    #[inline]
    fn get_all(&mut self, run: &[u8]) -> Result<(), ErrorKind> {
        let mut pos = 0;
        while let Some(&code) = run.get(pos) {
            pos += 1;
            let id = match code {
                op::BINGET => u32::from(array::<1>(run, &mut pos)?[0]),
                _ => u32::from_le_bytes(array(run, &mut pos)?),
            };
            self.get(id)?;
        }
        Ok(())
    }

    /// The unfilled list on top of the stack has become `value`.
    #[inline]
    fn finish_list(&mut self, value: Value) -> Result<(), ErrorKind> {
        let below = self.stack.len().checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(below)?;
        let target = *self.stack.last().ok_or(ErrorKind::StackUnderflow)?;
        self.replace(below, target, value)
    }

    /// Makes a tuple of the topmost `n` values.
    #[inline]
    pub(super) fn tuple_of(&mut self, n: usize) -> Result<(), ErrorKind> {
        let from = self.stack.len().checked_sub(n).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(from)?;
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

    pub(super) fn pop_text(&mut self) -> Result<String, ErrorKind> {
        let value = self.pop()?;
        Ok(self.builder.text_of(value).unwrap_or("?").to_owned())
    }

    /// The only global that a snapshot may name is the type tag of PyTorch's C++ pickler.
    pub(super) fn global(&mut self, module: &str, name: &str) -> Result<(), ErrorKind> {
        if (module, name) == ("torch.jit._pickle", "restore_type_tag") {
            self.push(Value::RESTORE_TYPE_TAG);
            Ok(())
        } else {
            let (module, name) = (text::printable(module), text::printable(name));
            Err(ErrorKind::Refused(format!("{module}.{name}")))
        }
    }

    pub(super) fn reduce(&mut self) -> Result<(), ErrorKind> {
        let argument = self.pop()?;
        match self.pop()? {
            Value::RESTORE_TYPE_TAG => {
                self.push(argument);
                Ok(())
            }
            _ => Err(ErrorKind::Refused("a call".to_owned())),
        }
    }
}
