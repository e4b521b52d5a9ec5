//! Trace entries whose keys are those of an earlier entry.

use super::super::trace::parse_action;
use super::super::{Stacks, TraceEntry};
use super::entry_keys::EntryKeys;
use super::{Decoder, PAIR, STACK};
use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::snapshot::pickle::Value;

/// The maximum number of accepted lists of keys. A file has one for each kind of entry.
const MAX_ACCEPTED: usize = 64;

impl Decoder {
    /// A number for these keys of a trace entry; `None` if there are too many others.
    pub(super) fn accept_entry_keys(&mut self, keys: Vec<SymbolId>) -> Option<u32> {
        if let Some(known) = self.entry_keys.iter().position(|known| known.keys == keys) {
            return Some(to_u32(known));
        }
        if self.entry_keys.len() == MAX_ACCEPTED {
            return None;
        }
        for key in &keys {
            self.seen.entry.add(*key);
        }
        self.entry_keys.push(EntryKeys::new(keys));
        Some(to_u32(self.entry_keys.len() - 1))
    }

    /// The entry of the accepted `keys` and `values`; `None` if anything is unusual.
    #[inline]
    pub(super) fn read_accepted_entry(&mut self, keys: u32, values: &[Value]) -> Option<Value> {
        let accepted = self.entry_keys.get(keys as usize)?;
        let Some(positions) = &accepted.positions else {
            let pairs: Vec<_> = accepted.keys.iter().copied().zip(values.iter().copied()).collect();
            return self.read_entry(pairs.into_iter()).ok();
        };
        let value = |position: u8| values.get(usize::from(position)).copied();
        let integer = |position| value(position).map_or(Some(0), |value| Some(value.as_int()?.cast_unsigned()));
        let entry = TraceEntry {
            action: parse_action(values.first()?.as_text()?)?,
            addr: integer(positions.addr)?,
            size: integer(positions.size)?,
            stream: integer(positions.stream)?,
            time_us: integer(positions.time_us)?,
            stack: match value(positions.frames) {
                Some(frames) => StackId(frames.as_node(STACK)?),
                None => Stacks::EMPTY,
            },
            pool: match value(positions.pool) {
                Some(pool) => Some(PoolId(pool.as_node(PAIR)?)),
                None => None,
            },
            compile_context: value(positions.compile_context).and_then(Value::as_text),
            user_metadata: value(positions.user_metadata).and_then(Value::as_text),
            ..TraceEntry::new()
        };
        Some(self.push_entry(entry))
    }
}
