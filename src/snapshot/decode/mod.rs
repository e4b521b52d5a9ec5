//! From pickle values to columns.
//!
//! Dicts are told apart by their keys as they end: a frame, a trace entry, a block and a segment go
//! straight into their tables and leave a row number behind; whatever else a file holds stays a
//! generic dict or list until [`finish`](finish::finish) walks the top level. A dict or list that a
//! pickle writes piecemeal (protocol 0) stays generic until something uses it ([`Decoder::settle`]).

mod finish;
mod records;

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::keys::{self};
use super::version::KeysSeen;
use super::{Event, Frame, Snapshot, SnapshotError};
use crate::ids::{FrameId, StackId, SymbolId, row};
use crate::pickle::{self, Builder, ErrorKind, Kind, NodeKind, Value};

const FRAME: NodeKind = 0;
const STACK: NodeKind = 1;
const EVENT: NodeKind = 2;
const BLOCK: NodeKind = 3;
const SEGMENT: NodeKind = 4;
/// Two integers: a pool id.
const PAIR: NodeKind = 5;
/// A row of `Decoder::lists`.
const LIST: NodeKind = 6;
/// A row of `Decoder::dicts`.
const DICT: NodeKind = 7;
/// A row of `Decoder::scalars`.
const SCALAR: NodeKind = 8;

/// Reads a pickled snapshot.
pub(super) fn read(bytes: &[u8], progress: &dyn Fn(u64)) -> Result<Snapshot, SnapshotError> {
    let mut decoder = Decoder::new();
    match pickle::read(bytes, &mut decoder, progress) {
        Ok(pickle) => {
            let end = usize::try_from(pickle.end).unwrap_or(usize::MAX);
            if end < bytes.len() {
                let message = format!(
                    "{} bytes follow the end of the pickle at byte {end}: they were not read",
                    bytes.len() - end
                );
                decoder.snapshot.warnings.add("trailing-bytes", message);
            }
            finish::finish(decoder, pickle.root)
        }
        Err(error) => {
            let entries = decoder.snapshot.events.len() as u64;
            Err(SnapshotError::Pickle { error, entries })
        }
    }
}

/// Keeps what the machine (or the JSON reader) finds.
pub(super) struct Decoder {
    snapshot: Snapshot,
    seen: KeysSeen,
    /// Keys and actions nobody here knows, each reported once.
    unknown: FxHashSet<(&'static str, SymbolId)>,
    lists: Vec<List>,
    dicts: Vec<Dict>,
    scalars: Vec<Scalar>,
    /// Reused by `intern_stack`.
    frame_ids: Vec<FrameId>,
}

/// A list that is not a stack or a pair.
enum List {
    /// Rows of one table, in runs of consecutive ones.
    Rows(NodeKind, Vec<Range<u32>>),
    /// Anything.
    Values(Vec<Value>),
    /// Was used, as this: may not grow any more.
    Settled(Value),
}

enum Dict {
    Pairs(Vec<Value>),
    /// Was used, as this: may not grow any more.
    Settled(Value),
}

#[derive(Clone, Copy)]
enum Scalar {
    Float(f64),
    /// Beyond 60 bits.
    Int(i128),
    /// Bytes, or an integer beyond 128 bits: nothing a snapshot needs.
    Opaque,
}

fn unexpected<T>(message: String) -> Result<T, ErrorKind> {
    Err(ErrorKind::Unexpected(message))
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            snapshot: Snapshot { symbols: keys::symbols(), ..Snapshot::default() },
            seen: KeysSeen::default(),
            unknown: FxHashSet::default(),
            lists: Vec::new(),
            dicts: Vec::new(),
            scalars: Vec::new(),
            frame_ids: Vec::new(),
        }
    }

    /// Ends the reading of a JSON dump.
    pub(super) fn finish(self, root: Value) -> Result<Snapshot, SnapshotError> {
        finish::finish(self, root)
    }

    /// Trace entries read so far.
    pub(super) fn entries(&self) -> u64 {
        self.snapshot.events.len() as u64
    }

    fn scalar(&mut self, scalar: Scalar) -> Value {
        self.scalars.push(scalar);
        Value::node(SCALAR, row(self.scalars.len() - 1))
    }

    fn new_list(&mut self, list: List) -> Value {
        self.lists.push(list);
        Value::node(LIST, row(self.lists.len() - 1))
    }

    /// The typed value that a dict with these pairs stands for, if it is one that we know.
    #[inline]
    fn typed(&mut self, pairs: &[Value]) -> Result<Option<Value>, ErrorKind> {
        // The usual trace entry begins so; everything else is told by all its keys.
        if let [first, _, second, ..] = pairs
            && first.as_text() == Some(keys::ACTION)
            && matches!(second.as_text(), Some(keys::ADDR | keys::DEVICE_FREE))
        {
            return self.event(pairs).map(Some);
        }
        self.typed_by_all_keys(pairs)
    }

    fn typed_by_all_keys(&mut self, pairs: &[Value]) -> Result<Option<Value>, ErrorKind> {
        let has = |key| pairs.iter().step_by(2).any(|k| k.as_text() == Some(key));
        if has(keys::STAGE) || has(keys::SEGMENTS) {
            Ok(None) // an annotation, whose metadata may use any key; or the top level
        } else if has(keys::ACTION) && has(keys::SIZE) {
            self.event(pairs).map(Some)
        } else if has(keys::BLOCKS) {
            self.segment(pairs).map(Some)
        } else if has(keys::STATE) && has(keys::SIZE) {
            self.block(pairs).map(Some)
        } else if has(keys::FILENAME) && has(keys::NAME) {
            self.frame(pairs).map(Some)
        } else {
            Ok(None)
        }
    }

    /// What a generic dict or list stands for now that it is used. It may not change afterwards.
    fn settle(&mut self, value: Value) -> Result<Value, ErrorKind> {
        match value.kind() {
            Kind::Node(DICT, index) => {
                let index = index as usize;
                match self.dicts.get(index) {
                    Some(Dict::Pairs(pairs)) => {
                        let pairs = pairs.clone();
                        match self.typed(&pairs)? {
                            Some(typed) => {
                                if let Some(dict) = self.dicts.get_mut(index) {
                                    *dict = Dict::Settled(typed);
                                }
                                Ok(typed)
                            }
                            None => Ok(value),
                        }
                    }
                    Some(Dict::Settled(typed)) => Ok(*typed),
                    None => Ok(value),
                }
            }
            Kind::Node(LIST, index) => {
                let index = index as usize;
                match self.lists.get(index) {
                    Some(List::Values(items)) => {
                        let items = items.clone();
                        let settled = self.make_list(&items)?;
                        if settled.kind() == value.kind() {
                            return Ok(value);
                        }
                        if let Some(list) = self.lists.get_mut(index) {
                            *list = List::Settled(settled);
                        }
                        Ok(settled)
                    }
                    Some(List::Settled(settled)) => Ok(*settled),
                    _ => Ok(value),
                }
            }
            _ => Ok(value),
        }
    }

    /// A list of these items, all at hand.
    fn make_list(&mut self, items: &[Value]) -> Result<Value, ErrorKind> {
        if let [a, b] = items
            && let (Some(a), Some(b)) = (a.as_int(), b.as_int())
        {
            let pair = [a.cast_unsigned(), b.cast_unsigned()];
            return Ok(Value::node(PAIR, self.snapshot.pools.intern(pair).0));
        }
        if let Some(stack) = self.intern_stack(items)? {
            return Ok(Value::node(STACK, stack.0));
        }
        let mut rows: Option<(NodeKind, Vec<Range<u32>>)> = None;
        for item in items {
            match (self.settle(*item)?.kind(), &mut rows) {
                (Kind::Node(kind @ (EVENT | BLOCK | SEGMENT), row), None) => {
                    rows = Some((kind, std::iter::once(row..row + 1).collect()));
                }
                (Kind::Node(kind, row), Some((same, runs))) if kind == *same => {
                    match runs.last_mut() {
                        Some(run) if run.end == row => run.end += 1,
                        _ => runs.push(row..row + 1),
                    }
                }
                (_, Some(_)) => {
                    return unexpected("a list mixes records of a snapshot with others".to_owned());
                }
                (_, None) => return Ok(self.new_list(List::Values(items.to_vec()))),
            }
        }
        match rows {
            Some((kind, runs)) => Ok(self.new_list(List::Rows(kind, runs))),
            None => Ok(Value::EMPTY_LIST),
        }
    }

    /// The stack of these items, if they are all frames (or text, as PyTorch 2.0 wrote C++ frames).
    #[inline]
    fn intern_stack(&mut self, items: &[Value]) -> Result<Option<StackId>, ErrorKind> {
        let mut ids = std::mem::take(&mut self.frame_ids);
        ids.clear();
        for item in items {
            if let Some(id) = item.as_node(FRAME) {
                ids.push(FrameId(id));
                continue;
            }
            match item.kind() {
                Kind::Text(name) => {
                    let file = self.snapshot.symbols.intern("");
                    ids.push(self.snapshot.stacks.intern_frame(Frame { file, name, line: 0 }));
                }
                Kind::Node(DICT, _) => match self.settle(*item)?.kind() {
                    Kind::Node(FRAME, id) => ids.push(FrameId(id)),
                    _ => break,
                },
                _ => break,
            }
        }
        let stack = (ids.len() == items.len()).then(|| self.snapshot.stacks.intern(&ids));
        self.frame_ids = ids;
        Ok(stack)
    }

    /// The items of a list that was made of parts, to add more to it.
    fn reopen(&self, value: Value) -> Option<Vec<Value>> {
        match value.kind() {
            Kind::Node(STACK, id) => {
                let frames = self.snapshot.stacks.frames(StackId(id));
                Some(frames.iter().map(|f| Value::node(FRAME, f.0)).collect())
            }
            Kind::Node(PAIR, id) => {
                let pair = self.snapshot.pools.get(crate::ids::PoolId(id));
                pair.iter().map(|n| Value::int(n.cast_signed())).collect()
            }
            _ => None,
        }
    }

    fn push_event(&mut self, event: Event) -> Value {
        let row = row(self.snapshot.events.len());
        self.snapshot.events.push(event);
        Value::node(EVENT, row)
    }
}

impl Builder for Decoder {
    fn text(&mut self, text: &str) -> Value {
        Value::text(self.snapshot.symbols.intern(text))
    }

    fn bytes(&mut self, _bytes: &[u8]) -> Value {
        self.scalar(Scalar::Opaque)
    }

    fn wide_int(&mut self, bytes: &[u8]) -> Value {
        let negative = bytes.last().is_some_and(|top| top & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        let scalar = match wide.get_mut(..bytes.len()) {
            Some(low) => {
                low.copy_from_slice(bytes);
                Scalar::Int(i128::from_le_bytes(wide))
            }
            None => Scalar::Opaque,
        };
        self.scalar(scalar)
    }

    fn float(&mut self, value: f64) -> Value {
        self.scalar(Scalar::Float(value))
    }

    fn tuple(&mut self, items: &[Value]) -> Result<Value, ErrorKind> {
        if items.is_empty() { Ok(Value::EMPTY_LIST) } else { self.make_list(items) }
    }

    fn list(&mut self, so_far: Value, items: &[Value]) -> Result<Value, ErrorKind> {
        let Kind::Node(kind, index) = so_far.kind() else {
            return match so_far.kind() {
                Kind::EmptyList => self.make_list(items),
                _ => unexpected("items are added to something that is no list".to_owned()),
            };
        };
        if let Some(mut all) = self.reopen(so_far) {
            all.extend_from_slice(items);
            return Ok(self.new_list(List::Values(all)));
        }
        if kind != LIST {
            return unexpected("items are added to something that is no list".to_owned());
        }
        let index = index as usize;
        match self.lists.get_mut(index) {
            Some(List::Values(all)) => {
                all.extend_from_slice(items);
                Ok(so_far)
            }
            Some(List::Rows(..)) => {
                let more = self.make_list(items)?;
                let more = match more.kind() {
                    Kind::Node(LIST, index) => self.lists.pop().map(|list| (index, list)),
                    _ => None,
                };
                match (self.lists.get_mut(index), more) {
                    (Some(List::Rows(kind, runs)), Some((_, List::Rows(same, more))))
                        if *kind == same =>
                    {
                        for run in more {
                            match runs.last_mut() {
                                Some(last) if last.end == run.start => last.end = run.end,
                                _ => runs.push(run),
                            }
                        }
                        Ok(so_far)
                    }
                    _ => unexpected("a list mixes records of a snapshot with others".to_owned()),
                }
            }
            _ => Err(ErrorKind::Recursive),
        }
    }

    #[inline]
    fn dict(&mut self, so_far: Value, pairs: &[Value]) -> Result<Value, ErrorKind> {
        match so_far.kind() {
            Kind::EmptyDict => {
                if let Some(typed) = self.typed(pairs)? {
                    return Ok(typed);
                }
                self.dicts.push(Dict::Pairs(pairs.to_vec()));
                Ok(Value::node(DICT, row(self.dicts.len() - 1)))
            }
            Kind::Node(DICT, index) => match self.dicts.get_mut(index as usize) {
                Some(Dict::Pairs(all)) => {
                    all.extend_from_slice(pairs);
                    Ok(so_far)
                }
                _ => Err(ErrorKind::Recursive),
            },
            Kind::Node(..) => {
                unexpected("a record of a snapshot is changed after it ended".to_owned())
            }
            _ => unexpected("pairs are added to something that is no dict".to_owned()),
        }
    }

    fn text_of(&self, value: Value) -> Option<&str> {
        match value.kind() {
            Kind::Text(id) => Some(self.snapshot.symbols.get(id)),
            _ => None,
        }
    }

    fn is_shareable(&self, value: Value) -> bool {
        matches!(value.kind(), Kind::Node(STACK, _))
    }
}
