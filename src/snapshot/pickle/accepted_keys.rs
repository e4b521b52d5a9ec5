//! The keys of dicts that are read in one go: see [`super::similar_dicts`].

use super::value::Value;

/// The maximum number of keys.
pub(super) const MAX_KEYS: usize = 16;
/// Bytes that hold a reference to a key and a short value.
pub(super) const WORD: usize = 16;

/// The keys of the last dict that the builder accepted, and buffers for the next one.
#[derive(Default)]
pub(super) struct AcceptedKeys {
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<Value>,
    /// The values that the dict writes to the memo.
    pub(super) memoized: Vec<Value>,
    /// Number of dicts since the last record that have the first key, but are no record.
    pub(super) misses: u32,
}

/// A memo reference to a key.
pub(super) struct Key {
    pub(super) reference: Prefix,
    /// The reference with the last value that was written in place and memoized. Most such values repeat.
    pub(super) with_value: Option<(Prefix, Value)>,
}

/// Up to [`WORD`] bytes.
pub(super) struct Prefix {
    bytes: u128,
    mask: u128,
    pub(super) len: usize,
}

impl Prefix {
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let (mut word, mut mask) = ([0; WORD], [0; WORD]);
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        mask.get_mut(..bytes.len())?.fill(0xff);
        Some(Self { bytes: u128::from_le_bytes(word), mask: u128::from_le_bytes(mask), len: bytes.len() })
    }

    #[inline]
    pub(super) fn matches(&self, word: u128) -> bool {
        (word ^ self.bytes) & self.mask == 0
    }
}

impl AcceptedKeys {
    /// Whether to learn the keys of the dict that was just decoded and is no record. Often its values are the
    /// reason, so a dict with the first key is learned only after 1, 2, 4, 8, ... misses.
    pub(super) fn is_worth_learning(&mut self) -> bool {
        let has_first_key = !self.values.is_empty();
        self.misses = self.misses.saturating_add(u32::from(has_first_key));
        !has_first_key || self.misses.is_power_of_two()
    }

    /// Forgets the keys: after a memo slot is overwritten, a reference may mean another key.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }
}
