//! The memo: what the pickle has put aside to refer to again, by number.
//!
//! Real snapshots put every entry's dict and list in the memo and refer to few of them, so slots are
//! 32 bits wide, with a side table for the rare values that need more.

use super::value::{Value, as_reserved, is_plain, reserved};

#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<u32>,
    wide: Vec<Value>,
    /// How many slots were never written. Picklers leave none.
    gaps: usize,
}

/// `reserved(0)`: a slot that was never written. Side-table slots count from 1.
fn unset() -> u32 {
    reserved(0)
}

impl Memo {
    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline]
    pub(super) fn has_gaps(&self) -> bool {
        self.gaps > 0
    }

    /// How many slots were written: the one that MEMOIZE writes next.
    pub(super) fn written(&self) -> u64 {
        (self.slots.len() - self.gaps) as u64
    }

    /// Puts `value` in the slot after the last.
    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        let packed = self.pack(value);
        self.slots.push(packed);
    }

    /// Puts `value` in slot `id`, growing as needed; says whether the slot held something before.
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

    /// The value in slot `id` when it is an ordinary one: the fast half of [`Memo::get`].
    #[inline]
    pub(super) fn get_plain(&self, id: u32) -> Option<Value> {
        let packed = *self.slots.get(id as usize)?;
        is_plain(packed).then(|| Value::unpack(packed))
    }

    pub(super) fn get(&self, id: usize) -> Option<Value> {
        let packed = *self.slots.get(id)?;
        match as_reserved(packed) {
            None => Some(Value::unpack(packed)),
            Some(index) => self.wide.get((index as usize).checked_sub(1)?).copied(),
        }
    }

    #[inline]
    fn pack(&mut self, value: Value) -> u32 {
        value.pack().unwrap_or_else(|| {
            self.wide.push(value);
            reserved(crate::base::ids::to_u32(self.wide.len()))
        })
    }
}
