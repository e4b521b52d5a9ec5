//! How the dicts of trace entries are written: the bytes that all of a kind share, and where the others are.

use super::memo::Memo;
use super::opcode as op;
use super::value::Value;

/// The maximum number of keys of a dict with a layout.
pub(super) const MAX_KEYS: usize = 16;
/// The maximum number of bytes of a layout: most entries take about 110 before their stack.
pub(super) const MAX_BYTES: usize = 192;
/// Bytes that are compared at once.
const WORD: usize = 8;
/// The maximum number of layouts. The actions and the widths of numbers make about ten.
const MAX_LAYOUTS: usize = 32;
/// A full table learns another layout after this number of dicts with known ones.
const DICTS_PER_LAYOUT: u32 = 8;
/// After this number of dicts without a known layout, only some are looked at.
const MAX_MISSES: u32 = 64;

/// The last operand, and its value. Most repeat.
pub(super) type Last = Option<(u64, Value)>;

/// A value of a dict, with the position of its operand.
#[derive(Clone, Copy)]
pub(super) enum Field {
    None,
    ShortReference(u8),
    LongReference(u8),
    Int1(u8),
    Int2(u8),
    Int4(u8),
    /// LONG1 with this many bytes.
    Long(u8, u8),
    /// `SHORT_BINUNICODE` with this many bytes, memoized.
    Text(u8, u8, Last),
    /// A tuple of two small integers, memoized. The second operand starts two bytes after the first.
    Pair(u8, Last),
    /// A list of references, memoized; always the last value.
    List,
}

/// Bytes `start..` of a dict, after its MARK.
pub(super) type Start = [u8; MAX_BYTES];

/// One way to write a dict.
pub(super) struct Layout {
    /// 0xff for each shared byte.
    mask: Box<Start>,
    /// The shared bytes, and the mask.
    words: Vec<[u64; 2]>,
    /// Length in bytes, with SETITEMS; without the references of a list at its end.
    pub(super) len: usize,
    pub(super) fields: Vec<Field>,
    /// Buffer for the values of the fields.
    pub(super) values: Vec<Value>,
    /// The indexes of the fields that are memoized.
    pub(super) memoized: Vec<usize>,
    pub(super) has_list: bool,
    /// The builder's number of the keys.
    pub(super) keys: u32,
    /// The layout that followed this one last time.
    next: usize,
    /// When it was last used, as [`Layouts::clock`].
    used: u32,
}

/// The layouts of the dicts that the builder accepts.
#[derive(Default)]
pub(super) struct Layouts {
    known: Vec<Layout>,
    /// The last one.
    last: usize,
    /// Number of dicts with known layouts.
    clock: u32,
    /// [`Self::clock`] when the last layout was learned.
    learned: u32,
    /// Number of dicts since the last one with a known layout.
    misses: u32,
}

impl Layout {
    #[inline]
    fn fits(&self, start: &Start) -> bool {
        let found = start.as_chunks::<WORD>().0;
        let mut words = found.iter().zip(&self.words);
        words.all(|(found, [shared, mask])| u64::from_ne_bytes(*found) & mask == *shared)
    }

    /// The keys and the layout of the dict that starts with `start`, if it can have one.
    pub(super) fn read(start: &Start, memo: &Memo) -> Option<(Vec<Value>, Self)> {
        let mut layout = Self {
            mask: Box::new([0; MAX_BYTES]),
            words: Vec::new(),
            len: 0,
            fields: Vec::new(),
            values: Vec::new(),
            memoized: Vec::new(),
            has_list: false,
            keys: 0,
            next: 0,
            used: 0,
        };
        let mut keys = Vec::new();
        while !layout.has_list {
            let rest = start.get(layout.len..)?;
            let (slot, len) = match *rest {
                [op::SETITEMS, ..] => {
                    layout.share(1)?;
                    break;
                }
                [op::BINGET, slot, ..] => (slot.into(), 2),
                [op::LONG_BINGET, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]), 5),
                _ => return None,
            };
            keys.push(memo.get_plain(slot)?);
            layout.share(len)?;
            layout.add_value(start.get(layout.len..)?)?;
        }
        if keys.len() > MAX_KEYS {
            return None;
        }
        let [found, masks] = [start, &*layout.mask].map(|bytes| bytes.as_chunks::<WORD>().0.iter());
        let words = found.zip(masks).take(layout.len.div_ceil(WORD));
        layout.words = words
            .map(|(found, mask)| {
                let mask = u64::from_ne_bytes(*mask);
                [u64::from_ne_bytes(*found) & mask, mask]
            })
            .collect();
        Some((keys, layout))
    }

    /// Makes the next `len` bytes shared ones.
    fn share(&mut self, len: usize) -> Option<()> {
        self.mask.get_mut(self.len..self.len + len)?.fill(0xff);
        self.len += len;
        Some(())
    }

    /// Adds the value at the start of `rest`.
    fn add_value(&mut self, rest: &[u8]) -> Option<()> {
        let at = u8::try_from(self.len + 1).ok()?;
        let (field, shared, operand) = match *rest {
            [op::NONE, ..] => (Field::None, 1, 0_usize),
            [op::BININT1, _, op::BININT1, _, op::TUPLE2, op::MEMOIZE, ..] => (Field::Pair(at, None), 1, 5),
            [op::BINGET, ..] => (Field::ShortReference(at), 1, 1),
            [op::LONG_BINGET, ..] => (Field::LongReference(at), 1, 4),
            [op::BININT1, ..] => (Field::Int1(at), 1, 1),
            [op::BININT2, ..] => (Field::Int2(at), 1, 2),
            [op::BININT, ..] => (Field::Int4(at), 1, 4),
            [op::LONG1, n @ 1..=7, ..] => (Field::Long(at + 1, n), 2, n.into()),
            [op::SHORT_BINUNICODE, n, ..] if rest.get(2 + usize::from(n)) == Some(&op::MEMOIZE) => {
                (Field::Text(at + 1, n, None), 2, usize::from(n) + 1)
            }
            [op::EMPTY_LIST, op::MEMOIZE, op::MARK, ..] => (Field::List, 3, 0),
            _ => return None,
        };
        self.share(shared)?;
        self.len += operand;
        // The opcodes between and after operands.
        match field {
            Field::Pair(at, _) => {
                let at = usize::from(at);
                *self.mask.get_mut(at + 1)? = 0xff;
                self.mask.get_mut(at + 3..at + 5)?.fill(0xff);
            }
            Field::Text(at, n, _) => *self.mask.get_mut(usize::from(at) + usize::from(n))? = 0xff,
            Field::List => self.has_list = true,
            _ => {}
        }
        if matches!(field, Field::Pair(..) | Field::Text(..) | Field::List) {
            self.memoized.push(self.fields.len());
        }
        self.fields.push(field);
        self.values.push(Value::NONE);
        Some(())
    }
}

impl Layouts {
    /// The layout that fits `start`.
    #[inline]
    pub(super) fn find(&self, start: &Start) -> Option<usize> {
        let next = self.known.get(self.last)?.next;
        if self.known.get(next).is_some_and(|layout| layout.fits(start)) {
            return Some(next);
        }
        self.known.iter().position(|layout| layout.fits(start))
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Layout> {
        self.known.get(index)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Layout> {
        self.known.get_mut(index)
    }

    /// Notes that layout `index` fitted the last dict.
    #[inline]
    pub(super) fn set_last(&mut self, index: usize) {
        self.misses = 0;
        self.clock = self.clock.wrapping_add(1);
        if let Some(last) = self.known.get_mut(self.last) {
            last.next = index;
        }
        if let Some(layout) = self.known.get_mut(index) {
            layout.used = self.clock;
        }
        self.last = index;
    }

    /// Whether to learn the layout of a dict that has none of these.
    pub(super) fn is_worth_learning(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        let has_room = self.known.len() < MAX_LAYOUTS || self.clock.wrapping_sub(self.learned) >= DICTS_PER_LAYOUT;
        has_room && (self.misses <= MAX_MISSES || self.misses.is_power_of_two())
    }

    /// Adds `layout`, in place of the one that was not used for longest.
    pub(super) fn add(&mut self, layout: Layout) {
        self.learned = self.clock;
        if self.known.len() < MAX_LAYOUTS {
            self.known.push(layout);
            return;
        }
        let clock = self.clock;
        let oldest = self.known.iter_mut().max_by_key(|layout| clock.wrapping_sub(layout.used));
        if let Some(oldest) = oldest {
            *oldest = Layout { used: clock, ..layout };
        }
    }

    /// Forgets the layouts: after a memo slot is overwritten, a reference may mean another key.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.last = 0;
    }
}

/// The `LEN` bytes at `at`.
#[inline]
pub(super) fn operand<const LEN: usize>(start: &Start, at: u8) -> Option<[u8; LEN]> {
    start.get(usize::from(at)..)?.first_chunk().copied()
}
