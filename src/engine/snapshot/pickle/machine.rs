//! The pickle machine: a loop over the opcodes, with a stack, marks and a memo.

use std::io;

use rustc_hash::FxHashSet;

use super::builder::Builder;
use super::bytes::{sign_extend, take_array, take_bytes, to_length};
use super::error::{ErrorKind, PickleError};
use super::layouts::Layouts;
use super::memo::{CHECK_INTERVAL, Memo, bytes_until_next_check};
use super::opcode::{self as op};
use super::reference_runs::ReferenceRuns;
use super::text;
use super::value::{Kind, Value};

/// Bytes between two progress reports.
const PROGRESS_INTERVAL: usize = 16 << 20;

/// The result of [`read`], without the builder's values.
#[derive(Debug, Clone, Copy)]
pub struct Pickle {
    /// The pickled value.
    pub root: Value,
    /// Offset of the end of the pickle. Bytes after it were not read.
    pub end: u64,
}

/// Whether `bytes` start like a binary pickle: PROTO and a known protocol.
pub fn looks_like_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [op::PROTO, 0..=5, ..])
}

/// Reads one pickle from the start of `bytes`. `progress` is called with the offset from time to time.
///
/// # Errors
/// If the bytes are not a pickle, end early, import or call code, or contain something that `builder` rejects.
pub fn read<B: Builder>(bytes: &[u8], builder: &mut B, progress: &dyn Fn(u64)) -> Result<Pickle, PickleError> {
    let mut machine = Machine::new(builder, Memo::with_room(bytes.len()), ReferenceRuns::new(None));
    machine.input_len = bytes.len();
    machine.run(bytes, progress)
}

/// Reads one pickle from `pieces`, in which it may be divided anywhere. Returns its value, and the bytes after it in the
/// piece that has its end. `None` after an error: [`read`] reports it, and accepts more where it depends on the size of
/// the input.
pub fn read_pieces<B: Builder>(
    pieces: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
    builder: &mut B,
) -> Option<(Value, Vec<u8>)> {
    let mut machine = Machine::new(builder, Memo::default(), ReferenceRuns::new(Some(Vec::new())));
    let mut unread = Vec::new();
    loop {
        let divided = unread.len();
        // At least as many bytes again, or a long string would be looked at too often.
        while unread.len() <= 2 * divided
            && let Some(piece) = pieces.next()
        {
            let piece = piece.ok()?;
            machine.input_len += piece.len();
            machine.builder.add_input(piece.len() as u64);
            unread.extend(piece);
        }
        if unread.len() == divided {
            return None;
        }
        match machine.run(&unread, &|_| ()) {
            Ok(Pickle { root, end }) => return Some((root, unread.split_off(usize::try_from(end).ok()?))),
            // No opcode changes anything before it has all of its bytes.
            Err(PickleError { offset, kind: ErrorKind::Truncated, .. }) => {
                unread.drain(..usize::try_from(offset).ok()?);
            }
            Err(_) => return None,
        }
    }
}

pub(super) struct Machine<'a, B> {
    pub(super) builder: &'a mut B,
    /// Number of bytes of input so far.
    input_len: usize,
    pub(super) stack: Vec<Value>,
    /// Height of the stack at each open MARK.
    pub(super) marks: Vec<usize>,
    pub(super) memo: Memo,
    pub(super) runs: ReferenceRuns,
    /// The layouts of dicts that are read in one go.
    pub(super) layouts: Layouts,
    /// The bytes of the last string, and its value.
    last_text: (Vec<u8>, Value),
    /// Memo slots of containers that were referred to while unfilled.
    referenced_unfilled: FxHashSet<u64>,
    /// Whether an unfilled container is in more than one slot.
    has_aliases: bool,
}

/// Picklers write items in batches of this size. A single item left over follows without a MARK.
pub(super) const BATCH: usize = 1000;

/// Whether another part of a list or dict follows at `pos`; `None` if `bytes` end there.
#[inline]
pub(super) fn may_grow(bytes: &[u8], pos: usize) -> Option<bool> {
    bytes.get(pos).map(|next| *next == op::MARK)
}

impl<'a, B: Builder> Machine<'a, B> {
    fn new(builder: &'a mut B, memo: Memo, runs: ReferenceRuns) -> Self {
        Self {
            last_text: (Vec::new(), builder.text("")),
            builder,
            input_len: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo,
            runs,
            layouts: Layouts::default(),
            referenced_unfilled: FxHashSet::default(),
            has_aliases: false,
        }
    }

    /// Continues at the start of `bytes`.
    fn run(&mut self, bytes: &[u8], progress: &dyn Fn(u64)) -> Result<Pickle, PickleError> {
        /// Continues with the next opcode, or evaluates to the error.
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
        let mut pos = 0;
        let (mut check_at, mut report_at) = (0, PROGRESS_INTERVAL);
        loop {
            let start = pos;
            let Some(&code) = bytes.get(pos) else {
                return Err(PickleError { offset: start as u64, opcode: None, kind: ErrorKind::Truncated });
            };
            if start >= check_at {
                let checked = self.check_memory();
                checked.map_err(|kind| PickleError { offset: start as u64, opcode: Some(code), kind })?;
                check_at = start + CHECK_INTERVAL;
                if start >= report_at {
                    progress(start as u64);
                    report_at = start + PROGRESS_INTERVAL;
                }
            }
            pos += 1;
            // The frequent opcodes are here, so that `pos` stays in a register and the loop continues
            // without a call.
            let kind = match code {
                op::LONG_BINGET => match take_array(bytes, &mut pos) {
                    Ok(id) => go!(self.get(u32::from_le_bytes(id))),
                    Err(kind) => kind,
                },
                op::BINGET => match take_array(bytes, &mut pos) {
                    Ok([id]) => go!(self.get(u32::from(id))),
                    Err(kind) => kind,
                },
                op::MEMOIZE => go!(self.memoize()),
                op::MARK => {
                    let end = match self.stack.last().map(|top| top.kind()) {
                        Some(Kind::EmptyList) => self.fill_with_references(bytes, pos),
                        _ => None,
                    };
                    if let Some(end) = end {
                        pos = end;
                        continue;
                    }
                    // Also after an error in a run: reading it opcode by opcode finds the position.
                    self.marks.push(self.stack.len());
                    continue;
                }
                op::EMPTY_DICT => {
                    match self.read_dict_by_layout(bytes, pos) {
                        Some(end) => pos = end,
                        None => self.push(Value::EMPTY_DICT),
                    }
                    continue;
                }
                op::EMPTY_LIST => push!(Value::EMPTY_LIST),
                op::SETITEMS => go!(self.fill_from_mark(true, may_grow(bytes, pos))),
                op::APPENDS => go!(self.fill_from_mark(false, may_grow(bytes, pos))),
                op::BININT => match take_array(bytes, &mut pos) {
                    Ok(n) => push!(Value::from_i32(i32::from_le_bytes(n))),
                    Err(kind) => kind,
                },
                op::BININT1 => match take_array(bytes, &mut pos) {
                    Ok([n]) => push!(Value::from_i32(i32::from(n))),
                    Err(kind) => kind,
                },
                op::BININT2 => match take_array(bytes, &mut pos) {
                    Ok(n) => push!(Value::from_i32(i32::from(u16::from_le_bytes(n)))),
                    Err(kind) => kind,
                },
                op::LONG1 => match bytes.get(pos..).and_then(<[u8]>::first_chunk::<9>) {
                    // Addresses and times: the integer, and further bytes after it.
                    Some(&[n @ 1..=7, word @ ..]) => {
                        pos += 1 + usize::from(n);
                        self.push_int(sign_extend(word, usize::from(n)));
                        continue;
                    }
                    _ => go!(take_array(bytes, &mut pos)
                        .and_then(|[n]: [u8; 1]| take_bytes(bytes, &mut pos, usize::from(n)))
                        .map(|digits| self.push_long(digits))),
                },
                op::SHORT_BINUNICODE => match take_array(bytes, &mut pos)
                    .and_then(|[n]: [u8; 1]| take_bytes(bytes, &mut pos, usize::from(n)))
                {
                    Ok(utf8) => {
                        self.push_text(utf8);
                        continue;
                    }
                    Err(kind) => kind,
                },
                op::TUPLE2 => go!(self.push_tuple(2)),
                op::STOP => match self.pop() {
                    Ok(root) => return Ok(Pickle { root, end: pos as u64 }),
                    Err(kind) => kind,
                },
                _ => match self.run_rare_opcode(code, bytes, pos) {
                    Ok(next) => {
                        pos = next;
                        continue;
                    }
                    Err(kind) => kind,
                },
            };
            return Err(PickleError { offset: start as u64, opcode: Some(code), kind });
        }
    }

    fn check_memory(&self) -> Result<(), ErrorKind> {
        let tables = bytes_until_next_check(&self.stack) + bytes_until_next_check(&self.marks);
        self.builder.check_memory((tables + self.memo.bytes_until_next_check()) as u64)
    }

    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    /// Pops the top value, which must be above the last MARK.
    pub(super) fn pop(&mut self) -> Result<Value, ErrorKind> {
        let below = self.stack.len().checked_sub(1).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(below)?;
        self.stack.pop().ok_or(ErrorKind::StackUnderflow)
    }

    /// Checks that `height` is above the last MARK: opcodes take no values from below it.
    #[inline]
    pub(super) fn check_above_mark(&self, height: usize) -> Result<(), ErrorKind> {
        match self.marks.last() {
            Some(mark) if *mark > height => Err(ErrorKind::StackUnderflow),
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn pop_mark(&mut self) -> Result<usize, ErrorKind> {
        self.marks.pop().ok_or(ErrorKind::NoMark)
    }

    pub(super) fn push_text(&mut self, utf8: &[u8]) {
        // PyTorch writes the same compile context again in every trace entry.
        let (last, value) = &self.last_text;
        if last == utf8 {
            return self.push(*value);
        }
        let value = match std::str::from_utf8(utf8) {
            Ok(text) => self.builder.text(text),
            // CPython writes lone surrogates (from undecodable file names) unchanged.
            Err(_) => self.builder.text(&String::from_utf8_lossy(utf8)),
        };
        self.last_text.0.clear();
        self.last_text.0.extend_from_slice(utf8);
        self.last_text.1 = value;
        self.push(value);
    }

    /// An integer of little-endian two's complement `digits`; no digits mean 0.
    pub(super) fn push_long(&mut self, digits: &[u8]) {
        let mut word = [0; 8];
        if let Some(low) = word.get_mut(..digits.len()) {
            low.copy_from_slice(digits);
            self.push_int(sign_extend(word, digits.len()));
        } else {
            self.stack.push(self.builder.wide_int(digits));
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
            None => self.get_slow(id)?,
        };
        self.push(value);
        Ok(())
    }

    #[cold]
    fn get_slow(&mut self, id: u32) -> Result<Value, ErrorKind> {
        let found = self.memo.get(id as usize).ok_or(ErrorKind::UnwrittenMemo(u64::from(id)))?;
        if found.is_unfilled() { self.reference_unfilled(found) } else { Ok(found) }
    }

    /// A reference to a container that was unfilled when it was copied: its current value. If it is still unfilled, it
    /// must not be filled later.
    pub(super) fn reference_unfilled(&mut self, value: Value) -> Result<Value, ErrorKind> {
        // Without a memo slot this is the only reference.
        let Some(home) = value.memo_slot() else { return Ok(value) };
        let now = usize::try_from(home).ok().and_then(|home| self.memo.get(home));
        let now = now.ok_or(ErrorKind::UnwrittenMemo(home))?;
        if now.is_unfilled() {
            self.referenced_unfilled.insert(home);
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
            if top.memo_slot().is_none() {
                *top = top.with_memo_slot(slot);
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
        // Picklers number the memo from 0 or 1 without gaps. A gap must not cost more memory than the file.
        let index = match usize::try_from(id) {
            Ok(index) if index < self.input_len => index,
            _ => return Err(ErrorKind::MemoOutOfRange(id)),
        };
        let top = self.stack.last_mut().ok_or(ErrorKind::StackUnderflow)?;
        if let Some(old) = self.memo.get(index)
            && old != *top
            && (old.is_unfilled() || self.has_aliases)
        {
            return Err(ErrorKind::MemoReused(id));
        }
        if top.is_unfilled() {
            if top.memo_slot().is_none() {
                *top = top.with_memo_slot(id);
            } else {
                self.has_aliases |= top.memo_slot() != Some(id);
            }
        }
        if self.memo.put(index, *top) {
            self.runs.clear();
            self.layouts.clear();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn fill_from_mark(&mut self, is_dict: bool, may_grow: Option<bool>) -> Result<(), ErrorKind> {
        let may_grow = may_grow.ok_or(ErrorKind::Truncated)?;
        let from = self.pop_mark()?;
        self.fill(from, is_dict, may_grow)
    }

    /// Adds the values above `from` to the container just below.
    #[inline]
    pub(super) fn fill(&mut self, from: usize, is_dict: bool, may_grow: bool) -> Result<(), ErrorKind> {
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

    /// Whether the unfilled container `target` was referred to. It must not be filled then.
    #[inline]
    pub(super) fn is_referenced(&self, target: Value) -> bool {
        !self.referenced_unfilled.is_empty()
            && target.memo_slot().is_some_and(|home| self.referenced_unfilled.contains(&home))
    }

    /// Replaces the container at `below` by `value`, on the stack and in the memo.
    #[inline]
    pub(super) fn replace(&mut self, below: usize, target: Value, value: Value) -> Result<(), ErrorKind> {
        if target.is_unfilled() {
            if self.is_referenced(target) {
                return Err(ErrorKind::Recursive);
            }
            if let Some(home) = target.memo_slot() {
                self.memo.put(to_length(home)?, value);
            }
        } else if value != target {
            // The memo cannot be updated: other slots may hold a list with the same content.
            return Err(ErrorKind::Recursive);
        }
        if let Some(slot) = self.stack.get_mut(below) {
            *slot = value;
        }
        Ok(())
    }

    /// Pops `n` values and pushes a tuple of them.
    #[inline]
    pub(super) fn push_tuple(&mut self, n: usize) -> Result<(), ErrorKind> {
        let from = self.stack.len().checked_sub(n).ok_or(ErrorKind::StackUnderflow)?;
        self.check_above_mark(from)?;
        let items = self.stack.get(from..).ok_or(ErrorKind::StackUnderflow)?;
        let callee = from.checked_sub(1).and_then(|below| self.stack.get(below));
        let value = match items {
            // `restore_type_tag` returns its first argument: see `reduce`.
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

    /// The only allowed global is the type tag of PyTorch's C++ pickler.
    pub(super) fn push_global(&mut self, module: &str, name: &str) -> Result<(), ErrorKind> {
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
