//! Writes pickles, opcode for opcode as CPython's C pickler (protocol 4) does.
//!
//! The details are copied from `Modules/_pickle.c`: a frame is closed before the first value that
//! begins beyond 64 KiB, a text of that length stands outside the frames, every container and text is
//! memoized, lists and dicts are filled in batches of 1000, and integers take the shortest of five
//! forms. Only the empty batch is left out that it adds to a dict whose last batch is full.

use crate::base::intern::SeededMap;
use std::io::{self, Write};

const FRAME_TARGET: usize = 64 * 1024;
/// What is shorter stands without a frame.
const FRAME_LEAST: usize = 4;
const BATCH: usize = 1000;

const PROTO_4: [u8; 2] = [0x80, 4];
const FRAME: u8 = 0x95;
const MARK: u8 = b'(';
const STOP: u8 = b'.';
const MEMOIZE: u8 = 0x94;
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const EMPTY_DICT: u8 = b'}';
const SETITEM: u8 = b's';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPEND: u8 = b'a';
const APPENDS: u8 = b'e';
const TUPLE2: u8 = 0x86;
const NONE: u8 = b'N';
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const BINUNICODE8: u8 = 0x8d;

/// The number under which a pickle remembers a value, to refer to it again.
pub type MemoKey = u32;

/// A pickle that is being written: one value, whose parts are written in order.
///
/// Holds one frame and what [`PickleWriter::interned`] was given; everything else is gone once it is
/// written. That every container is closed and every key has its value is the caller's part.
pub struct PickleWriter<'a> {
    out: &'a mut dyn Write,
    frame: Vec<u8>,
    written: u64,
    next_memo: MemoKey,
    interned: SeededMap<Box<str>, MemoKey>,
}

impl<'a> PickleWriter<'a> {
    /// Begins a pickle.
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(&PROTO_4)?;
        Ok(Self {
            out,
            frame: Vec::with_capacity(FRAME_TARGET + 1024),
            written: PROTO_4.len() as u64,
            next_memo: 0,
            interned: SeededMap::default(),
        })
    }

    /// Bytes so far, with those of the frame that is still open.
    pub fn bytes(&self) -> u64 {
        self.written + self.frame.len() as u64
    }

    /// Ends the pickle and returns its length in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.frame.push(STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.written)
    }

    /// `None`.
    pub fn none(&mut self) -> io::Result<()> {
        self.value(NONE)
    }

    /// `True` or `False`.
    pub fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.value(if value { NEWTRUE } else { NEWFALSE })
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) -> io::Result<()> {
        self.begin_value()?;
        if let Ok(byte) = u8::try_from(value) {
            self.frame.extend([BININT1, byte]);
        } else if let Ok(short) = u16::try_from(value) {
            self.frame.push(BININT2);
            self.frame.extend(short.to_le_bytes());
        } else if let Ok(word) = i32::try_from(value) {
            self.frame.push(BININT);
            self.frame.extend(word.to_le_bytes());
        } else {
            self.long(value.into());
        }
        Ok(())
    }

    /// An integer that is not negative.
    pub fn unsigned(&mut self, value: u64) -> io::Result<()> {
        if let Ok(signed) = i64::try_from(value) {
            return self.integer(signed);
        }
        self.begin_value()?;
        self.long(value.into());
        Ok(())
    }

    /// A float.
    pub fn float(&mut self, value: f64) -> io::Result<()> {
        self.value(BINFLOAT)?;
        self.frame.extend(value.to_be_bytes());
        Ok(())
    }

    /// A string object of its own, even where an equal one was written before.
    pub fn text(&mut self, text: &str) -> io::Result<MemoKey> {
        self.begin_value()?;
        let is_outside = text.len() >= FRAME_TARGET;
        if is_outside {
            self.close_frame()?;
        }
        if let Ok(length) = u8::try_from(text.len()) {
            self.frame.extend([SHORT_BINUNICODE, length]);
        } else if let Ok(length) = u32::try_from(text.len()) {
            self.frame.push(BINUNICODE);
            self.frame.extend(length.to_le_bytes());
        } else {
            self.frame.push(BINUNICODE8);
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

    /// A string object that the pickle holds once: dict keys, and whatever else comes again.
    pub fn interned(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.interned.get(text) {
            return self.reference(memo);
        }
        let memo = self.text(text)?;
        self.interned.insert(text.into(), memo);
        Ok(())
    }

    /// The very object that was written as `memo`.
    pub fn reference(&mut self, memo: MemoKey) -> io::Result<()> {
        self.begin_value()?;
        if let Ok(byte) = u8::try_from(memo) {
            self.frame.extend([BINGET, byte]);
        } else {
            self.frame.push(LONG_BINGET);
            self.frame.extend(memo.to_le_bytes());
        }
        Ok(())
    }

    /// A tuple of two integers that are not negative.
    pub fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.unsigned(first)?;
        self.unsigned(second)?;
        self.frame.push(TUPLE2);
        self.memoize()?;
        Ok(())
    }

    /// Opens a dict of 2 to 1000 pairs, such as a record has: the usual case, a single batch. A key
    /// and its value follow each other; [`PickleWriter::end_dict`] closes it.
    pub fn begin_dict(&mut self) -> io::Result<MemoKey> {
        let memo = self.dict()?;
        self.frame.push(MARK);
        Ok(memo)
    }

    /// Closes what [`PickleWriter::begin_dict`] opened.
    pub fn end_dict(&mut self) {
        self.frame.push(SETITEMS);
    }

    /// Opens a dict of any size. Each of its pairs goes between [`PickleWriter::before_item`] and
    /// [`PickleWriter::after_pair`].
    pub fn dict(&mut self) -> io::Result<MemoKey> {
        self.value(EMPTY_DICT)?;
        self.memoize()
    }

    /// Opens a list. Each of its items goes between [`PickleWriter::before_item`] and
    /// [`PickleWriter::after_item`].
    pub fn list(&mut self) -> io::Result<MemoKey> {
        self.value(EMPTY_LIST)?;
        self.memoize()
    }

    /// Item or pair `index` of `total` follows.
    pub fn before_item(&mut self, index: usize, total: usize) {
        if total > 1 && index.is_multiple_of(BATCH) {
            self.frame.push(MARK);
        }
    }

    /// Item `index` of the `total` items of a list is written.
    pub fn after_item(&mut self, index: usize, total: usize) {
        self.after(index, total, APPEND, APPENDS);
    }

    /// Pair `index` of the `total` pairs of a dict is written.
    pub fn after_pair(&mut self, index: usize, total: usize) {
        self.after(index, total, SETITEM, SETITEMS);
    }

    fn after(&mut self, index: usize, total: usize, single: u8, batch: u8) {
        let count = index + 1;
        if total == 1 {
            self.frame.push(single);
        } else if count == total || count.is_multiple_of(BATCH) {
            self.frame.push(batch);
        }
    }

    fn value(&mut self, opcode: u8) -> io::Result<()> {
        self.begin_value()?;
        self.frame.push(opcode);
        Ok(())
    }

    /// Two's complement in as few bytes as keep the sign.
    fn long(&mut self, value: i128) {
        let bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let length = 16 - (bits - 1) / 8;
        let [low, ..] = length.to_le_bytes();
        self.frame.extend([LONG1, low]);
        self.frame.extend(value.to_le_bytes().into_iter().take(length as usize));
    }

    fn memoize(&mut self) -> io::Result<MemoKey> {
        self.frame.push(MEMOIZE);
        let memo = self.next_memo;
        let next = memo.checked_add(1);
        self.next_memo =
            next.ok_or_else(|| io::Error::other("a pickle remembers no more than 2^32 objects"))?;
        Ok(memo)
    }

    fn begin_value(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME_TARGET {
            self.close_frame()?;
        }
        Ok(())
    }

    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME_LEAST {
            let length = self.frame.len() as u64;
            self.out.write_all(&[FRAME])?;
            self.out.write_all(&length.to_le_bytes())?;
            self.written += 9;
        }
        self.flush()
    }

    /// Writes what the frame holds, without its head.
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.frame)?;
        self.written += self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }
}
