//! Values of the machine: a tag of 4 bits and a payload of 60 bits.

use crate::base::ids::SymbolId;

/// A pickle value in one word. Containers, floats and wide integers are nodes of the [`Builder`] that created them.
///
/// [`Builder`]: super::Builder
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value(u64);

/// The number of a builder's table, 0 to 8.
pub type NodeKind = u8;

/// The kind of a [`Value`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer of at most 60 bits. Wider ones are nodes.
    Int(i64),
    /// An interned string.
    Text(SymbolId),
    /// A list without items so far.
    EmptyList,
    /// A dict without items so far.
    EmptyDict,
    /// A row of one of the builder's tables.
    Node(NodeKind, u32),
}

const TAG_BITS: u32 = 4;
const TAG_MASK: u64 = 15;
const NONE: u64 = 0;
const BOOL: u64 = 1;
const INT: u64 = 2;
const TEXT: u64 = 3;
const FIRST_NODE: u64 = 4;
/// In a memo slot, tags from here on need a closer look: see [`is_plain`].
const LIST: u64 = 13;
const DICT: u64 = 14;
/// Internal to the machine: memo slots that point to a side table, and [`Value::RESTORE_TYPE_TAG`].
const RESERVED: u64 = 15;
/// [`TAG_MASK`] for packed words, in which [`RESERVED`] is all ones.
const PACKED_TAG: u32 = 15;

impl Value {
    /// `None`
    pub const NONE: Self = Self(NONE);
    pub const EMPTY_LIST: Self = Self(LIST);
    pub const EMPTY_DICT: Self = Self(DICT);

    /// The function `torch.jit._pickle.restore_type_tag`, which returns its first argument. Its payload is too wide for
    /// [`Value::pack`], so it cannot be confused with a side-table slot.
    pub(super) const RESTORE_TYPE_TAG: Self = Self(1 << 40 | RESERVED);

    /// `True` or `False`
    pub fn bool(value: bool) -> Self {
        Self(u64::from(value) << TAG_BITS | BOOL)
    }

    /// An integer; `None` if it is wider than 60 bits.
    #[inline]
    pub fn int(value: i64) -> Option<Self> {
        let shifted = value << TAG_BITS;
        (shifted >> TAG_BITS == value).then_some(Self(shifted.cast_unsigned() | INT))
    }

    /// An integer that always fits.
    #[inline]
    pub(super) fn from_i32(value: i32) -> Self {
        Self((i64::from(value) << TAG_BITS).cast_unsigned() | INT)
    }

    /// A string interned by the builder.
    pub fn text(id: SymbolId) -> Self {
        Self(u64::from(id.0) << TAG_BITS | TEXT)
    }

    /// Row `index` of the builder's table `kind`.
    #[inline]
    pub fn node(kind: NodeKind, index: u32) -> Self {
        debug_assert!(u64::from(kind) + FIRST_NODE < LIST);
        Self(u64::from(index) << TAG_BITS | (u64::from(kind) + FIRST_NODE))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "payloads are as narrow as they were put in")]
    pub fn kind(self) -> Kind {
        let payload = self.0 >> TAG_BITS;
        match self.0 & TAG_MASK {
            NONE | RESERVED => Kind::None,
            BOOL => Kind::Bool(payload != 0),
            INT => Kind::Int(self.0.cast_signed() >> TAG_BITS),
            TEXT => Kind::Text(SymbolId(payload as u32)),
            LIST => Kind::EmptyList,
            DICT => Kind::EmptyDict,
            tag => Kind::Node((tag - FIRST_NODE) as NodeKind, payload as u32),
        }
    }

    /// The integer, if it is one of at most 60 bits.
    #[inline]
    pub fn as_int(self) -> Option<i64> {
        (self.0 & TAG_MASK == INT).then_some(self.0.cast_signed() >> TAG_BITS)
    }

    /// The string, if it is one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "made from a 32-bit id")]
    pub fn as_text(self) -> Option<SymbolId> {
        (self.0 & TAG_MASK == TEXT).then_some(SymbolId((self.0 >> TAG_BITS) as u32))
    }

    /// The row of the builder's table `kind`, if it is one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "made from a 32-bit row")]
    pub fn as_node(self, kind: NodeKind) -> Option<u32> {
        (self.0 & TAG_MASK == u64::from(kind) + FIRST_NODE).then_some((self.0 >> TAG_BITS) as u32)
    }

    /// Whether this is a new list or dict without items. It may be filled later; then its memo slot must be updated.
    #[inline]
    pub(super) fn is_unfilled(self) -> bool {
        self.0 & TAG_MASK >= LIST && self.0 & TAG_MASK != RESERVED
    }

    /// The memo slot of an unfilled container.
    #[inline]
    pub(super) fn memo_slot(self) -> Option<u64> {
        (self.0 >> TAG_BITS).checked_sub(1)
    }

    /// The same unfilled container, in memo slot `slot`.
    pub(super) fn with_memo_slot(self, slot: u64) -> Self {
        Self(self.0 & TAG_MASK | (slot + 1) << TAG_BITS)
    }

    /// This value in 32 bits, if it fits.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the tag is 4 bits, the payload checked")]
    pub(super) fn pack(self) -> Option<u32> {
        let (tag, payload) = (self.0 as u32 & TAG_MASK as u32, self.0 >> TAG_BITS);
        (payload < 1 << 28).then_some((payload as u32) << TAG_BITS | tag)
    }

    /// The value that [`Value::pack`] packed.
    #[inline]
    pub(super) fn unpack(packed: u32) -> Self {
        Self(u64::from(packed))
    }
}

/// Whether a packed word is a value as it is: neither an unfilled container nor a side-table slot.
#[inline]
pub(super) fn is_plain(packed: u32) -> bool {
    u64::from(packed) & TAG_MASK < LIST
}

/// The packed word for slot `index` of a side table. No value packs to it.
#[inline]
pub(super) fn side_table_slot(index: u32) -> u32 {
    index << TAG_BITS | PACKED_TAG
}

/// The index that [`side_table_slot`] packed; `None` for a value.
#[inline]
pub(super) fn as_side_table_slot(packed: u32) -> Option<u32> {
    (packed & PACKED_TAG == PACKED_TAG).then_some(packed >> TAG_BITS)
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind().fmt(f)
    }
}
