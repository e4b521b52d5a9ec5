//! Lists that contain only references, read in one go: see [`super::reference_runs`].

use std::ops::Range;

use super::builder::Builder;
use super::bytes::take_array;
use super::error::ErrorKind;
use super::machine::{BATCH, Machine, may_grow};
use super::opcode as op;
use super::reference_runs::find_run_end;
use super::value::Value;

impl<B: Builder> Machine<'_, B> {
    /// Fills the list on top of the stack with the references at `start`. Returns the position after APPENDS; `None`,
    /// with the stack as it was, if there is anything else or the list may grow.
    #[inline]
    pub(super) fn fill_with_references(&mut self, bytes: &[u8], start: usize) -> Option<usize> {
        let (end, value) = self.read_references(bytes, start)?;
        let below = self.stack.len().checked_sub(1)?;
        self.check_above_mark(below).ok()?;
        let target = *self.stack.last()?;
        self.replace(below, target, value).ok()?;
        Some(end)
    }

    /// The position after the list of the references at `start`, and the list.
    #[inline]
    pub(super) fn read_references(&mut self, bytes: &[u8], start: usize) -> Option<(usize, Value)> {
        let (end, value) = if let Some(predicted) = self.runs.predict(bytes, start) {
            predicted
        } else {
            let end = find_run_end(bytes, start)?;
            (end, self.find_or_make_list(bytes, start..end)?)
        };
        (may_grow(bytes, end + 1) == Some(false)).then_some((end + 1, value))
    }

    /// The list of the references in `run`.
    #[inline]
    fn find_or_make_list(&mut self, bytes: &[u8], run: Range<usize>) -> Option<Value> {
        let start = run.start;
        let raw = bytes.get(run)?;
        let hash = self.runs.hash(raw);
        let known = hash.and_then(|hash| self.runs.find(bytes, start, raw, hash));
        if known.is_some() {
            return known;
        }
        let from = self.stack.len();
        let pushed = self.push_references(raw).ok();
        let items = self.stack.get(from..).filter(|items| pushed.is_some() && items.len() < BATCH);
        let value = items.and_then(|items| self.builder.list(Value::EMPTY_LIST, items, false).ok());
        self.stack.truncate(from);
        let value = value?;
        if let Some(hash) = hash
            && self.builder.is_shareable(value)
        {
            self.runs.insert(bytes, start, raw, hash, value);
        }
        Some(value)
    }

    /// Pushes the values that `run` refers to.
    #[inline]
    fn push_references(&mut self, run: &[u8]) -> Result<(), ErrorKind> {
        let mut pos = 0;
        while let Some(&code) = run.get(pos) {
            pos += 1;
            let id = match code {
                op::BINGET => u32::from(take_array::<1>(run, &mut pos)?[0]),
                _ => u32::from_le_bytes(take_array(run, &mut pos)?),
            };
            self.get(id)?;
        }
        Ok(())
    }
}
