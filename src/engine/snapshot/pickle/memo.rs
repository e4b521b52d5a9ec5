//! The memo: values that the pickle can refer to again by number.
//!
//! Real snapshots memoize every dict and list, but refer to few of them. So slots are 32 bits wide, with a side table
//! for the rare values that need more.

use crate::base::pages;

use super::value::{Value, as_side_table_slot, is_plain, side_table_slot};

/// Bytes of a pickle between two looks at the memory in use.
pub(super) const CHECK_INTERVAL: usize = 64 << 10;

/// Most values in the memo take more bytes of a pickle.
const MIN_SLOT_BYTES: usize = 32;

/// The maximum size of `table` in bytes until [`CHECK_INTERVAL`] more bytes of the pickle are read. While it doubles,
/// the old and the new buffer together take three times its capacity.
pub(super) fn bytes_until_next_check<T>(table: &Vec<T>) -> usize {
    let grows = table.len() + CHECK_INTERVAL > table.capacity();
    table.capacity() * size_of::<T>() * if grows { 3 } else { 1 }
}

#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<u32>,
    wide: Vec<Value>,
    /// Number of slots that were never written. Picklers leave none.
    gaps: usize,
}

/// A slot that was never written. Side-table slots count from 1.
fn unset() -> u32 {
    side_table_slot(0)
}

impl Memo {
    /// With room for the slots of a pickle of `bytes`.
    pub(super) fn with_room(bytes: usize) -> Self {
        let mut memo = Self::default();
        pages::reserve(&mut memo.slots, bytes / MIN_SLOT_BYTES);
        memo
    }

    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn bytes_until_next_check(&self) -> usize {
        bytes_until_next_check(&self.slots) + bytes_until_next_check(&self.wide)
    }

    #[inline]
    pub(super) fn has_gaps(&self) -> bool {
        self.gaps > 0
    }

    /// Number of written slots, which is the slot that MEMOIZE writes next.
    pub(super) fn written(&self) -> u64 {
        (self.slots.len() - self.gaps) as u64
    }

    /// Writes `value` to a new slot.
    #[expect(clippy::inline_always, reason = "half of all opcodes do this")]
    #[inline(always)]
    pub(super) fn push(&mut self, value: Value) {
        let packed = self.pack(value);
        self.slots.push(packed);
    }

    /// Writes `value` to slot `id`, adding slots as needed. Returns whether the slot was written before.
    pub(super) fn put(&mut self, id: usize, value: Value) -> bool {
        if id >= self.slots.len() {
            self.gaps += id + 1 - self.slots.len();
            self.slots.resize(id + 1, unset());
        }
        let packed = self.pack(value);
        match self.slots.get_mut(id) {
            Some(slot) => {
                let is_first = std::mem::replace(slot, packed) == unset();
                self.gaps -= usize::from(is_first);
                !is_first
            }
            None => false,
        }
    }

    /// The value in slot `id` if it is plain: the fast path of [`Memo::get`].
    #[inline]
    pub(super) fn get_plain(&self, id: u32) -> Option<Value> {
        let packed = *self.slots.get(id as usize)?;
        is_plain(packed).then(|| Value::unpack(packed))
    }

    pub(super) fn get(&self, id: usize) -> Option<Value> {
        let packed = *self.slots.get(id)?;
        match as_side_table_slot(packed) {
            None => Some(Value::unpack(packed)),
            Some(index) => self.wide.get((index as usize).checked_sub(1)?).copied(),
        }
    }

    #[inline]
    fn pack(&mut self, value: Value) -> u32 {
        value.pack().unwrap_or_else(|| {
            self.wide.push(value);
            side_table_slot(crate::base::ids::to_u32(self.wide.len()))
        })
    }
}
