//! Writing pickles with the same opcodes as CPython's C pickler (protocol 4).
//!
//! As in `Modules/_pickle.c`, a frame is closed before the first value beyond 64 KiB, longer texts are outside of
//! frames, every container and text is memoized, lists and dicts are filled in batches of 1000, and integers take the
//! shortest of five forms. Only the empty batch that CPython adds to a dict with a full last batch is omitted.

use std::io::{self, Write};

use super::machine::BATCH;
use super::opcode as op;
use crate::base::intern::SeededMap;

const FRAME_TARGET: usize = 64 * 1024;
/// Shorter data is written without a frame.
const MIN_FRAME_SIZE: usize = 4;
const HEADER: [u8; 2] = [op::PROTO, 4];

/// A memo slot, to refer to a value again.
pub type MemoKey = u32;

/// Writes one pickled value, part by part.
///
/// Keeps one frame and the strings of [`PickleWriter::write_interned`] in memory. The caller must close every container
/// and write a value for every key.
pub struct PickleWriter<'a> {
    out: &'a mut dyn Write,
    frame: Vec<u8>,
    written: u64,
    next_memo: MemoKey,
    interned: SeededMap<Box<str>, MemoKey>,
}

impl<'a> PickleWriter<'a> {
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let frame = Vec::with_capacity(FRAME_TARGET + 1024);
        Ok(Self { out, frame, written: HEADER.len() as u64, next_memo: 0, interned: SeededMap::default() })
    }

    /// Bytes so far, including those of the open frame.
    pub fn written_bytes(&self) -> u64 {
        self.written + self.frame.len() as u64
    }

    /// Ends the pickle and returns its length in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.frame.push(op::STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.written)
    }

    pub fn write_none(&mut self) -> io::Result<()> {
        self.begin_opcode(op::NONE)
    }

    pub fn write_bool(&mut self, value: bool) -> io::Result<()> {
        self.begin_opcode(if value { op::NEWTRUE } else { op::NEWFALSE })
    }

    pub fn write_int(&mut self, value: i64) -> io::Result<()> {
        self.begin_value()?;
        if let Ok(byte) = u8::try_from(value) {
            self.frame.extend([op::BININT1, byte]);
        } else if let Ok(short) = u16::try_from(value) {
            self.frame.push(op::BININT2);
            self.frame.extend(short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(value) {
            self.frame.push(op::BININT);
            self.frame.extend(word.to_le_bytes());
        } else {
            self.write_long(value.into());
        }
        Ok(())
    }

    pub fn write_unsigned(&mut self, value: u64) -> io::Result<()> {
        if let Ok(signed) = i64::try_from(value) {
            return self.write_int(signed);
        }
        self.begin_value()?;
        self.write_long(value.into());
        Ok(())
    }

    pub fn write_float(&mut self, value: f64) -> io::Result<()> {
        self.begin_opcode(op::BINFLOAT)?;
        self.frame.extend(value.to_be_bytes());
        Ok(())
    }

    /// Writes a new string object, even if an equal one was written before.
    pub fn write_text(&mut self, text: &str) -> io::Result<MemoKey> {
        self.begin_value()?;
        let is_outside = text.len() >= FRAME_TARGET;
        if is_outside {
            self.close_frame()?;
        }
        if let Ok(length) = u8::try_from(text.len()) {
            self.frame.extend([op::SHORT_BINUNICODE, length]);
        } else if let Ok(length) = u32::try_from(text.len()) {
            self.frame.push(op::BINUNICODE);
            self.frame.extend(length.to_le_bytes());
        } else {
            self.frame.push(op::BINUNICODE8);
            self.frame.extend((text.len() as u64).to_le_bytes());
        }
        if is_outside {
            self.flush()?;
            self.out.write_all(text.as_bytes())?;
            self.written += text.len() as u64;
        } else {
            self.frame.extend(text.as_bytes());
        }
        self.memoize()
    }

    /// Writes a string object once and refers to it afterwards: for dict keys and other repeated strings.
    pub fn write_interned(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.interned.get(text) {
            return self.write_reference(memo);
        }
        let memo = self.write_text(text)?;
        self.interned.insert(text.into(), memo);
        Ok(())
    }

    /// Refers to the object in memo slot `memo`.
    pub fn write_reference(&mut self, memo: MemoKey) -> io::Result<()> {
        self.begin_value()?;
        if let Ok(byte) = u8::try_from(memo) {
            self.frame.extend([op::BINGET, byte]);
        } else {
            self.frame.push(op::LONG_BINGET);
            self.frame.extend(memo.to_le_bytes());
        }
        Ok(())
    }

    /// Writes a tuple of two integers.
    pub fn write_pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.write_unsigned(first)?;
        self.write_unsigned(second)?;
        self.frame.push(op::TUPLE2);
        self.memoize()?;
        Ok(())
    }

    /// Begins a dict of 2 to 1000 pairs, which takes a single batch. Keys and values alternate;
    /// [`PickleWriter::end_small_dict`] closes it.
    pub fn begin_small_dict(&mut self) -> io::Result<MemoKey> {
        let memo = self.begin_dict()?;
        self.frame.push(op::MARK);
        Ok(memo)
    }

    /// Closes the dict of [`PickleWriter::begin_small_dict`].
    pub fn end_small_dict(&mut self) {
        self.frame.push(op::SETITEMS);
    }

    /// Begins a dict of any size. Each pair goes between [`PickleWriter::begin_item`] and
    /// [`PickleWriter::end_dict_item`].
    pub fn begin_dict(&mut self) -> io::Result<MemoKey> {
        self.begin_opcode(op::EMPTY_DICT)?;
        self.memoize()
    }

    /// Begins a list. Each item goes between [`PickleWriter::begin_item`] and [`PickleWriter::end_list_item`].
    pub fn begin_list(&mut self) -> io::Result<MemoKey> {
        self.begin_opcode(op::EMPTY_LIST)?;
        self.memoize()
    }

    /// Before item or pair `index` of `total`.
    pub fn begin_item(&mut self, index: usize, total: usize) {
        if total > 1 && index.is_multiple_of(BATCH) {
            self.frame.push(op::MARK);
        }
    }

    /// After item `index` of `total` of a list.
    pub fn end_list_item(&mut self, index: usize, total: usize) {
        self.end_item(index, total, op::APPEND, op::APPENDS);
    }

    /// After pair `index` of `total` of a dict.
    pub fn end_dict_item(&mut self, index: usize, total: usize) {
        self.end_item(index, total, op::SETITEM, op::SETITEMS);
    }

    fn end_item(&mut self, index: usize, total: usize, single: u8, batch: u8) {
        let count = index + 1;
        if total == 1 {
            self.frame.push(single);
        } else if count == total || count.is_multiple_of(BATCH) {
            self.frame.push(batch);
        }
    }

    fn begin_opcode(&mut self, opcode: u8) -> io::Result<()> {
        self.begin_value()?;
        self.frame.push(opcode);
        Ok(())
    }

    /// Two's complement in the fewest bytes that keep the sign.
    fn write_long(&mut self, value: i128) {
        let bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let length = 16 - (bits - 1) / 8;
        let [low, ..] = length.to_le_bytes();
        self.frame.extend([op::LONG1, low]);
        self.frame.extend(value.to_le_bytes().into_iter().take(length as usize));
    }

    fn memoize(&mut self) -> io::Result<MemoKey> {
        self.frame.push(op::MEMOIZE);
        let memo = self.next_memo;
        let next = memo.checked_add(1);
        self.next_memo = next.ok_or_else(|| io::Error::other("a pickle remembers no more than 2^32 objects"))?;
        Ok(memo)
    }

    fn begin_value(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME_TARGET {
            self.close_frame()?;
        }
        Ok(())
    }

    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= MIN_FRAME_SIZE {
            let length = self.frame.len() as u64;
            self.out.write_all(&[op::FRAME])?;
            self.out.write_all(&length.to_le_bytes())?;
            self.written += 9;
        }
        self.flush()
    }

    /// Writes the contents of the frame, without a frame header.
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.frame)?;
        self.written += self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }
}
