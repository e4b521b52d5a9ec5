//! Writes pickle opcodes the way CPython's C pickler (protocol 4) does.
//!
//! A reader's speed depends on the opcodes and on where the frames end, so the details are copied
//! from `Modules/_pickle.c`: a frame is closed before the first value that begins beyond 64 KiB,
//! every container and string is memoized, lists are filled in batches of 1000, and integers take
//! the shortest of five forms.

use std::collections::HashMap;
use std::io::{self, Write};

const FRAME_TARGET: usize = 64 * 1024;
const BATCH: usize = 1000;

const PROTO_4: [u8; 2] = [0x80, 4];
const FRAME: u8 = 0x95;
const MARK: u8 = b'(';
const STOP: u8 = b'.';
const MEMOIZE: u8 = 0x94;
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPEND: u8 = b'a';
const APPENDS: u8 = b'e';
const TUPLE2: u8 = 0x86;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';

/// The number under which the pickle remembers a value, to refer to it again.
pub type Memo = u32;

pub struct PickleWriter<'a> {
    out: &'a mut dyn Write,
    frame: Vec<u8>,
    written: u64,
    next_memo: Memo,
    interned: HashMap<&'static str, Memo>,
}

impl<'a> PickleWriter<'a> {
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(&PROTO_4)?;
        Ok(PickleWriter {
            out,
            frame: Vec::with_capacity(FRAME_TARGET + 1024),
            written: PROTO_4.len() as u64,
            next_memo: 0,
            interned: HashMap::new(),
        })
    }

    /// Bytes so far, with those of the frame that is still open.
    pub fn bytes(&self) -> u64 {
        self.written + self.frame.len() as u64
    }

    /// Ends the pickle and returns its length.
    pub fn finish(mut self) -> io::Result<u64> {
        self.frame.push(STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.written)
    }

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
            self.long(value);
        }
        Ok(())
    }

    pub fn float(&mut self, value: f64) -> io::Result<()> {
        self.begin_value()?;
        self.frame.push(BINFLOAT);
        self.frame.extend(value.to_be_bytes());
        Ok(())
    }

    pub fn false_value(&mut self) -> io::Result<()> {
        self.begin_value()?;
        self.frame.push(NEWFALSE);
        Ok(())
    }

    /// A string object of its own, even where an equal one was written before.
    pub fn text(&mut self, text: &str) -> io::Result<Memo> {
        self.begin_value()?;
        if let Ok(length) = u8::try_from(text.len()) {
            self.frame.extend([SHORT_BINUNICODE, length]);
        } else {
            self.frame.push(BINUNICODE);
            self.frame.extend((text.len() as u32).to_le_bytes());
        }
        self.frame.extend(text.as_bytes());
        Ok(self.memoize())
    }

    /// A string object that Python holds once: dict keys and the names of actions and states.
    pub fn interned(&mut self, text: &'static str) -> io::Result<()> {
        match self.interned.get(text) {
            Some(&memo) => self.reference(memo),
            None => {
                let memo = self.text(text)?;
                self.interned.insert(text, memo);
                Ok(())
            }
        }
    }

    pub fn reference(&mut self, memo: Memo) -> io::Result<()> {
        self.begin_value()?;
        if let Ok(byte) = u8::try_from(memo) {
            self.frame.extend([BINGET, byte]);
        } else {
            self.frame.push(LONG_BINGET);
            self.frame.extend(memo.to_le_bytes());
        }
        Ok(())
    }

    pub fn pair(&mut self, first: i64, second: i64) -> io::Result<()> {
        self.integer(first)?;
        self.integer(second)?;
        self.frame.push(TUPLE2);
        self.memoize();
        Ok(())
    }

    /// Opens a dict of 2 to 1000 pairs, which takes one batch; `end_dict` closes it.
    pub fn begin_dict(&mut self) -> io::Result<Memo> {
        self.begin_value()?;
        self.frame.push(EMPTY_DICT);
        let memo = self.memoize();
        self.frame.push(MARK);
        Ok(memo)
    }

    pub fn end_dict(&mut self) {
        self.frame.push(SETITEMS);
    }

    /// Opens a list. Each of its `total` items goes between `before_item` and `after_item`.
    pub fn list(&mut self) -> io::Result<Memo> {
        self.begin_value()?;
        self.frame.push(EMPTY_LIST);
        Ok(self.memoize())
    }

    pub fn before_item(&mut self, index: usize, total: usize) {
        if total > 1 && index.is_multiple_of(BATCH) {
            self.frame.push(MARK);
        }
    }

    pub fn after_item(&mut self, index: usize, total: usize) {
        let count = index + 1;
        if total == 1 {
            self.frame.push(APPEND);
        } else if count == total || count.is_multiple_of(BATCH) {
            self.frame.push(APPENDS);
        }
    }

    /// Two's complement in as few bytes as keep the sign.
    fn long(&mut self, value: i64) {
        let bytes = value.to_le_bytes();
        let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let length = 8 - (sign_bits as usize - 1) / 8;
        self.frame.extend([LONG1, length as u8]);
        self.frame.extend(&bytes[..length]);
    }

    fn memoize(&mut self) -> Memo {
        self.frame.push(MEMOIZE);
        let memo = self.next_memo;
        self.next_memo += 1;
        memo
    }

    fn begin_value(&mut self) -> io::Result<()> {
        if self.frame.len() >= FRAME_TARGET {
            self.close_frame()?;
        }
        Ok(())
    }

    fn close_frame(&mut self) -> io::Result<()> {
        self.out.write_all(&[FRAME])?;
        self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        self.out.write_all(&self.frame)?;
        self.written += 9 + self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }
}
