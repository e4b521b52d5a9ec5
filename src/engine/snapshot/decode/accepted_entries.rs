//! Trace entries that are written like an earlier entry.

use super::super::trace::{EntryContext, parse_action};
use super::super::{Stacks, keys};
use super::{Decoder, ENTRY, PAIR, STACK, starts_entry};
use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::snapshot::pickle::{Place, Record, Value};

// Indexes of the values of a record.
const ADDR: usize = 0;
const SIZE: usize = 1;
const STREAM: usize = 2;
const TIME_US: usize = 3;
const ACTION: usize = 0;
const STACK_OF: usize = 1;
const POOL: usize = 2;
const COMPILE_CONTEXT: usize = 3;
const USER_METADATA: usize = 4;
/// Values that are not kept.
const IGNORED: std::ops::Range<usize> = 5..7;

impl Decoder {
    /// The places of the values of a trace entry with these keys, unless they are unusual.
    pub(super) fn place_entry_keys(&mut self, keys: &[Value]) -> Option<Vec<Place>> {
        let keys: Vec<SymbolId> = keys.iter().map(|key| key.as_text()).collect::<Option<_>>()?;
        matches!(keys.as_slice(), [first, second, ..] if starts_entry(*first, *second)).then_some(())?;
        let mut ignored = IGNORED;
        let mut places = Vec::new();
        for key in &keys {
            let place = match *key {
                keys::ACTION => Place::Value(ACTION),
                keys::ADDR | keys::DEVICE_FREE => Place::Integer(ADDR),
                keys::SIZE => Place::Integer(SIZE),
                keys::STREAM => Place::Integer(STREAM),
                keys::TIME_US => Place::Integer(TIME_US),
                keys::FRAMES => Place::Value(STACK_OF),
                keys::POOL_ID => Place::Value(POOL),
                keys::COMPILE_CONTEXT => Place::Value(COMPILE_CONTEXT),
                keys::USER_METADATA => Place::Value(USER_METADATA),
                keys::CPP_FRAMES | keys::FORWARD_FRAMES => return None,
                _ => Place::Value(ignored.next()?),
            };
            if places.contains(&place) {
                return None;
            }
            places.push(place);
        }
        for key in keys {
            self.note_entry_key(key);
        }
        Some(places)
    }

    /// Notes that a trace entry has `key`.
    #[inline]
    pub(super) fn note_entry_key(&mut self, key: SymbolId) {
        self.seen.entry.add(key);
        if key > keys::POOL_ID {
            self.note_unknown("trace entries", key);
        }
    }

    /// The entry of `record`; `None` if anything is unusual.
    #[inline]
    pub(super) fn read_accepted_entry(&mut self, record: &Record) -> Option<Value> {
        let Record { integers, values } = record;
        let action = parse_action(values[ACTION].as_text()?)?;
        let stack = match values[STACK_OF] {
            Record::ABSENT => Stacks::EMPTY,
            stack => StackId(stack.as_node(STACK)?),
        };
        let key = (integers[STREAM], [values[POOL], values[COMPILE_CONTEXT], values[USER_METADATA]]);
        let context = match self.last_context {
            Some((last, row)) if last == key => row,
            _ => self.add_context(key)?,
        };
        let row = to_u32(self.snapshot.entries.len());
        self.snapshot.entries.push_row(action, [integers[ADDR], integers[SIZE], integers[TIME_US]], stack, context);
        Some(Value::node(ENTRY, row))
    }

    /// The row of the context of these values, which most entries share with the last one.
    #[cold]
    fn add_context(&mut self, key: (u64, [Value; 3])) -> Option<u32> {
        let (stream, [pool, compile_context, user_metadata]) = key;
        let context = EntryContext {
            stream,
            forward: Stacks::EMPTY,
            pool: match pool {
                Record::ABSENT => None,
                pool => Some(PoolId(pool.as_node(PAIR)?)),
            },
            compile_context: compile_context.as_text(),
            user_metadata: user_metadata.as_text(),
        };
        let row = self.snapshot.entries.context_row(context);
        self.last_context = Some((key, row));
        Some(row)
    }
}
