//! Layouts of the dicts of trace entries.
//!
//! Most of a snapshot is trace entries: millions of dicts of about forty opcodes each. Executing these one by one pushes
//! every key and every value on the stack, and looks up most of them in the memo. But all entries of one action are written
//! in the same way: the same references to the keys, in the same order, each with a value of the same type and width.
//!
//! ```text
//! h 05  8c 05 "alloc" 94            BINGET "action"; SHORT_BINUNICODE, MEMOIZE
//! h 06  8a 06 00 00 40 5d 83 7f     BINGET "addr";   LONG1 of 6 bytes
//! h 07  M 00 02                     BINGET "size";   BININT2
//! ```
//!
//! A layout has the bytes that all dicts of a kind share (keys, opcodes, lengths), and the offsets of the others. If the
//! shared bytes of a dict are equal, so are its opcodes, and each value is where the layout says. Such a dict takes a
//! masked comparison and a few loads instead of forty opcodes.
//!
//! A reference is only a number, so a layout is right as long as memo slots keep their values: see [`Layouts::clear`]. The
//! machine reads everything that no layout describes: other opcodes, a dict in parts, an error.

use super::builder::{Builder, INTEGERS, Place, Record, VALUES};
use super::memo::Memo;
use super::opcode as op;
use super::value::Value;

/// The maximum number of keys of a dict with a layout.
const MAX_KEYS: usize = 16;
/// The maximum number of bytes of a layout: most entries take about 110 before their stack.
pub(super) const MAX_BYTES: usize = 192;
const WORD: usize = 8;
/// Words compared without a branch between them.
const GROUP: usize = 4;
/// The maximum number of layouts. The actions and the widths of numbers make about ten.
const MAX_LAYOUTS: usize = 32;
/// A full table learns a new layout only after this many dicts with known ones. Otherwise a hostile file could make
/// every dict pay for a layout that no other dict has.
const DICTS_PER_LAYOUT: u32 = 8;
/// After this many dicts in a row without a known layout, only the 128th, the 256th and so on are learned: the file
/// probably has no layouts.
const MAX_MISSES: u32 = 64;
/// Bits of each index in [`Layouts::history`]. A guess depends on the last eight.
const HISTORY_BITS: u32 = 6;
/// Binary logarithm of the number of guesses.
const GUESS_BITS: u32 = 13;

/// The first bytes of a dict, after its MARK.
pub(super) type Start = [u8; MAX_BYTES];

/// An integer of up to eight bytes within a dict.
#[derive(Clone, Copy, Default)]
struct Operand {
    at: u8,
    /// High bits of the word at `at` that do not belong to the operand.
    unused_bits: u8,
    /// Clears what sign extension sets in an unsigned integer.
    mask: u64,
}

/// How the value of a key is written.
#[derive(Clone, Copy)]
enum Field {
    None,
    Integer,
    Reference,
    /// `SHORT_BINUNICODE`, memoized: start and end of the text.
    Text(u8, u8),
    /// A memoized tuple of two small integers. The operand spans both, and the opcode between them.
    Pair,
    /// A memoized list of references; always the last value.
    List,
}

/// A value of a record that is not one of its integers.
struct ValueField {
    /// Its index in [`Record::values`].
    index: usize,
    field: Field,
    /// The bytes of the value, at most the first eight.
    operand: Operand,
    /// These bytes in the last dict. If a dict repeats them, as most do, it has the same value, already decoded. `None`
    /// for a longer text, which they do not identify.
    last: Option<u64>,
}

/// The layout of one kind of dict.
pub(super) struct Layout {
    /// The shared bytes, and a mask that is 0xff where a byte is shared. Beyond the dict's end nothing is.
    groups: Vec<[[u64; GROUP]; 2]>,
    /// The record of the last dict.
    pub(super) record: Record,
    /// Length in bytes, including SETITEMS; excludes the references of a trailing list.
    pub(super) len: usize,
    integers: [Operand; INTEGERS],
    values: Vec<ValueField>,
    /// Indexes of the memoized values, in the order of the dict.
    pub(super) memoized: Vec<usize>,
    /// Index of the value that is a list.
    pub(super) list: Option<usize>,
    /// [`Layouts::clock`] at its last use.
    used: u32,
}

/// The layouts of the dicts that the builder accepts.
#[derive(Default)]
pub(super) struct Layouts {
    pub(super) known: Vec<Layout>,
    /// Indexes of the last layouts, [`HISTORY_BITS`] each. Programs loop, so the layout that followed these last time
    /// probably follows again.
    history: u64,
    /// The layout that followed a history last time, by [`Layouts::guess_slot`].
    guesses: Vec<u8>,
    /// Number of dicts with known layouts.
    clock: u32,
    /// [`Self::clock`] when the last layout was learned.
    learned: u32,
    /// Number of dicts since the last one with a known layout.
    misses: u32,
}

impl Operand {
    /// `len` bytes at `at`; `None` if one load of a word cannot read them.
    fn new(at: usize, len: usize, is_signed: bool) -> Option<Self> {
        if len > WORD || at + WORD > MAX_BYTES {
            return None;
        }
        let unused_bits = u8::try_from((WORD - len.max(1)) * 8).ok()?;
        let mask = match len {
            0 => 0,
            _ if is_signed => u64::MAX,
            _ => u64::MAX >> unused_bits,
        };
        Some(Self { at: u8::try_from(at).ok()?, unused_bits, mask })
    }

    #[inline]
    fn read(self, start: &Start) -> u64 {
        let word = start.get(usize::from(self.at)..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        let word = i64::from_le_bytes(word);
        (word << (self.unused_bits & 63) >> (self.unused_bits & 63)).cast_unsigned() & self.mask
    }
}

impl ValueField {
    /// Decodes the value of the dict that starts with `start`; its operand is `word`. The caller reads lists, whose length
    /// no layout knows.
    fn read(&mut self, word: u64, start: &Start, memo: &Memo, builder: &mut impl Builder) -> Option<Value> {
        let value = match self.field {
            Field::None | Field::List => Value::NONE,
            Field::Integer => Value::int(word.cast_signed())?,
            Field::Reference => memo.get_plain(u32::try_from(word).ok()?)?,
            Field::Text(from, to) => {
                let text = start.get(usize::from(from)..usize::from(to))?;
                let value = builder.text(std::str::from_utf8(text).ok()?);
                if text.len() > WORD {
                    return Some(value);
                }
                value
            }
            Field::Pair => {
                let [first, _, second, ..] = word.to_le_bytes();
                builder.tuple(&[first, second].map(|item| Value::from_i32(item.into()))).ok()?
            }
        };
        self.last = Some(word);
        Some(value)
    }
}

impl Layout {
    #[inline]
    fn fits(&self, start: &Start) -> bool {
        let found = start.as_chunks::<WORD>().0.as_chunks::<GROUP>().0;
        found.iter().zip(&self.groups).all(|(found, [shared, mask])| {
            let words = found.iter().zip(shared).zip(mask);
            words.fold(0, |all, ((found, shared), mask)| all | (u64::from_ne_bytes(*found) & mask ^ shared)) == 0
        })
    }

    /// Reads the dict that starts with `start` into [`Self::record`], except its list.
    #[inline]
    pub(super) fn read(&mut self, start: &Start, memo: &Memo, builder: &mut impl Builder) -> Option<()> {
        self.record.integers = self.integers.map(|operand| operand.read(start));
        for field in &mut self.values {
            let word = field.operand.read(start);
            if field.last != Some(word) {
                *self.record.values.get_mut(field.index)? = field.read(word, start, memo, builder)?;
            }
        }
        Some(())
    }

    /// The layout of the dict that starts with `start`, if it can have one.
    pub(super) fn learn(start: &Start, memo: &Memo, builder: &mut impl Builder) -> Option<Self> {
        let Pairs { keys, fields, mask, len } = Pairs::read(start, memo)?;
        let [found, masks] = [start, &mask].map(|bytes| bytes.as_chunks::<WORD>().0.as_chunks::<GROUP>().0);
        let groups = found.iter().zip(masks).take(len.div_ceil(GROUP * WORD)).map(|(found, masks)| {
            let (mut shared, masks) = (found.map(u64::from_ne_bytes), masks.map(u64::from_ne_bytes));
            shared.iter_mut().zip(masks).for_each(|(word, mask)| *word &= mask);
            [shared, masks]
        });
        let places = builder.accept_keys(&keys)?;
        let mut layout = Self {
            groups: groups.collect(),
            record: Record { integers: [0; INTEGERS], values: [Record::ABSENT; VALUES] },
            len,
            integers: [Operand::default(); INTEGERS],
            values: Vec::new(),
            memoized: Vec::new(),
            list: None,
            used: 0,
        };
        for (place, (field, operand)) in places.into_iter().zip(fields) {
            match (place, field) {
                (Place::Integer(index), Field::Integer) => *layout.integers.get_mut(index)? = operand,
                (Place::Integer(_), _) => return None,
                (Place::Value(index), field) => layout.add_value(index, field, operand),
            }
        }
        Some(layout)
    }

    fn add_value(&mut self, index: usize, field: Field, operand: Operand) {
        if matches!(field, Field::Text(..) | Field::Pair | Field::List) {
            self.memoized.push(index);
        }
        if let Field::List = field {
            self.list = Some(index);
        }
        self.values.push(ValueField { index, field, operand, last: None });
    }
}

/// The keys of a dict and how their values are written, up to the references of a trailing list.
struct Pairs {
    keys: Vec<Value>,
    fields: Vec<(Field, Operand)>,
    /// 0xff for each byte that other dicts of the same layout share.
    mask: Start,
    len: usize,
}

impl Pairs {
    /// Reads the dict that starts with `start`; `None` if it has other opcodes, too many keys or too many bytes.
    fn read(start: &Start, memo: &Memo) -> Option<Self> {
        let mut pairs = Self { keys: Vec::new(), fields: Vec::new(), mask: [0; MAX_BYTES], len: 0 };
        while !matches!(pairs.fields.last(), Some((Field::List, _))) {
            let rest = start.get(pairs.len..)?;
            let (slot, key_len) = match *rest {
                [op::SETITEMS, ..] => {
                    *pairs.mask.get_mut(pairs.len)? = 0xff;
                    pairs.len += 1;
                    break;
                }
                [op::BINGET, slot, ..] => (slot.into(), 2),
                [op::LONG_BINGET, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]), 5),
                _ => return None,
            };
            pairs.keys.push(memo.get_plain(slot)?);
            let at = pairs.len + key_len;
            let (field, operand, varied, value_len) = Field::learn(at, start.get(at..)?)?;
            let end = at + value_len;
            pairs.mask.get_mut(pairs.len..end)?.fill(0xff);
            pairs.mask.get_mut(at + varied.start..at + varied.end)?.fill(0);
            if let Field::Pair = field {
                *pairs.mask.get_mut(at + 2)? = 0xff; // the opcode between the two integers
            }
            pairs.fields.push((field, operand));
            pairs.len = end;
        }
        (pairs.keys.len() <= MAX_KEYS).then_some(pairs)
    }
}

impl Field {
    /// The field whose value begins `rest`, at offset `at` of the dict; its operand; the range of its bytes that differ
    /// between dicts; and its length.
    fn learn(at: usize, rest: &[u8]) -> Option<(Self, Operand, std::ops::Range<usize>, usize)> {
        let (field, varied, is_signed, after) = match *rest {
            [op::NONE, ..] => (Self::None, 1..1, false, 0),
            [op::BININT1, _, op::BININT1, _, op::TUPLE2, op::MEMOIZE, ..] => (Self::Pair, 1..4, false, 2),
            [op::BINGET, ..] => (Self::Reference, 1..2, false, 0),
            [op::LONG_BINGET, ..] => (Self::Reference, 1..5, false, 0),
            [op::BININT1, ..] => (Self::Integer, 1..2, false, 0),
            [op::BININT2, ..] => (Self::Integer, 1..3, false, 0),
            [op::BININT, ..] => (Self::Integer, 1..5, true, 0),
            [op::LONG1, n @ 1..=7, ..] => (Self::Integer, 2..2 + usize::from(n), true, 0),
            [op::SHORT_BINUNICODE, n, ..] if rest.get(2 + usize::from(n)) == Some(&op::MEMOIZE) => {
                let len = usize::from(n);
                let [from, to] = [at + 2, at + 2 + len].map(u8::try_from);
                (Self::Text(from.ok()?, to.ok()?), 2..2 + len, false, 1)
            }
            [op::EMPTY_LIST, op::MEMOIZE, op::MARK, ..] => (Self::List, 3..3, false, 0),
            _ => return None,
        };
        let len = varied.end + after;
        let operand = Operand::new(at + varied.start, varied.len().min(WORD), is_signed)?;
        Some((field, operand, varied, len))
    }
}

impl Layouts {
    /// The layout that fits `start`.
    #[inline]
    pub(super) fn find(&self, start: &Start) -> Option<usize> {
        let guess = usize::from(*self.guesses.get(self.guess_slot())?);
        match self.known.get(guess) {
            Some(layout) if layout.fits(start) => Some(guess),
            _ => self.known.iter().position(|layout| layout.fits(start)),
        }
    }

    #[inline]
    fn guess_slot(&self) -> usize {
        let last = self.history << (64 - 8 * HISTORY_BITS);
        (last.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - GUESS_BITS)) as usize
    }

    /// Makes layout `index` that of the last dict, and the guess for the history before it.
    #[inline]
    pub(super) fn set_last(&mut self, index: usize) {
        self.misses = 0;
        self.clock = self.clock.wrapping_add(1);
        if let Some(layout) = self.known.get_mut(index) {
            layout.used = self.clock;
        }
        let slot = self.guess_slot();
        if let (Some(guess), Ok(index)) = (self.guesses.get_mut(slot), u8::try_from(index)) {
            *guess = index;
        }
        self.history = self.history << HISTORY_BITS | index as u64;
    }

    /// Whether to learn the layout of a dict that no known layout fits.
    pub(super) fn is_worth_learning(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        let has_room = self.known.len() < MAX_LAYOUTS || self.clock.wrapping_sub(self.learned) >= DICTS_PER_LAYOUT;
        has_room && (self.misses <= MAX_MISSES || self.misses.is_power_of_two())
    }

    /// Adds `layout`. A full table drops the least recently used one.
    pub(super) fn add(&mut self, layout: Layout) {
        self.learned = self.clock;
        if self.known.len() < MAX_LAYOUTS {
            self.guesses.resize(1 << GUESS_BITS, 0);
            self.known.push(layout);
            return;
        }
        let clock = self.clock;
        let oldest = self.known.iter_mut().max_by_key(|layout| clock.wrapping_sub(layout.used));
        if let Some(oldest) = oldest {
            *oldest = Layout { used: clock, ..layout };
        }
    }

    /// Forgets the layouts, because a memo slot was overwritten: references may mean other keys.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}
