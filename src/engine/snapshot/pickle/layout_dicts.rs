//! Dicts that are written like an earlier dict, read in one go: see [`super::layouts`].
//!
//! A trace entry is a dict of about ten memo references to keys, always the same, each with a value of a few bytes. If
//! the builder accepts the keys of a dict, its layout is learned. A later dict with the same bytes between its values is
//! decoded without the stack, and the builder receives its values together. The machine changes only after the whole
//! dict has been decoded. Any other dict is read opcode by opcode, which also reports its errors.

use super::builder::Builder;
use super::layouts::{Layout, MAX_BYTES};
use super::machine::{Machine, may_grow};
use super::opcode as op;

impl<B: Builder> Machine<'_, B> {
    /// Reads the dict whose `EMPTY_DICT` ends at `start`, if it is written like an earlier one. Returns the position after
    /// it.
    #[inline]
    pub(super) fn read_dict_by_layout(&mut self, bytes: &[u8], start: usize) -> Option<usize> {
        let rest = bytes.get(start..)?.strip_prefix(&[op::MEMOIZE, op::MARK])?.first_chunk::<MAX_BYTES>()?;
        if self.memo.has_gaps() {
            return None;
        }
        let Some(index) = self.layouts.find(rest) else {
            if self.layouts.is_worth_learning()
                && let Some(layout) = Layout::learn(rest, &self.memo, self.builder)
            {
                self.layouts.add(layout);
            }
            return None;
        };
        self.layouts.set_last(index);
        let layout = self.layouts.known.get_mut(index)?;
        layout.read(rest, &self.memo, self.builder)?;
        let mut end = start + 2 + layout.len;
        if let Some(list) = layout.list {
            let (list_end, value) = self.read_references(bytes, end)?;
            if bytes.get(list_end) != Some(&op::SETITEMS) {
                return None;
            }
            end = list_end + 1;
            *self.layouts.known.get_mut(index)?.record.values.get_mut(list)? = value;
        }
        if may_grow(bytes, end) != Some(false) {
            return None;
        }
        let layout = self.layouts.known.get(index)?;
        let value = self.builder.record(&layout.record)?;
        self.memo.push(value);
        for index in &layout.memoized {
            self.memo.push(*layout.record.values.get(*index)?);
        }
        self.push(value);
        Some(end)
    }
}
