//! Decoding pickle or JSON values into the tables of a [`Snapshot`].
//!
//! A complete dict is identified by its keys. Frames, trace entries, blocks and segments go straight into their tables,
//! and a row number takes their place. Other dicts and lists stay generic until [`Decoder::finish`] walks the top
//! level. A dict or list that a pickle writes in parts (protocol 0) stays generic until a container uses it
//! ([`Decoder::freeze`]). A frozen container cannot grow, so no container contains itself.

mod accepted_entries;
mod dry_run;
mod finish;
mod recorder_info;
mod records;
mod source_files;
mod tensor_names;
#[cfg(test)]
mod tests;

use crate::base::input::looks_like_log;
use std::io;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::memory_budget::{CONTAINER_BYTES, ITEM_BYTES, MemoryBudget};
use super::torch_range::KeysSeen;
use super::{Frame, Snapshot, SnapshotError, TraceEntry, keys};
use crate::base::ids::{FrameId, PoolId, StackId, SymbolId, to_u32};
use crate::base::pages::read_mapped;
use crate::base::warning::Code;
use crate::snapshot::pickle::{self, Builder, ErrorKind, Kind, NodeKind, Place, Record, Value};

const FRAME: NodeKind = 0;
const STACK: NodeKind = 1;
const ENTRY: NodeKind = 2;
const BLOCK: NodeKind = 3;
const SEGMENT: NodeKind = 4;
/// A pair of integers: a pool id.
const PAIR: NodeKind = 5;
/// A list in `Decoder::containers`.
const LIST: NodeKind = 6;
/// A dict in `Decoder::containers`.
const DICT: NodeKind = 7;
/// A row of `Decoder::scalars`.
const SCALAR: NodeKind = 8;

/// The maximum number of warnings about unknown keys and actions, and about wrong sums of segments.
const MAX_WARNINGS: usize = 50;

/// The maximum number of zero bytes after a pickle.
const MAX_PADDING: usize = 3;

/// Most entries take more bytes of a file.
const MIN_ENTRY_BYTES: usize = 96;

/// Whether `_memory_viz.py` may have written `rest` after a pickle, which it pads to a multiple of three bytes.
fn is_padding(rest: &[u8]) -> bool {
    rest.len() <= MAX_PADDING && rest.iter().all(|byte| *byte == 0)
}

/// Reads a pickled snapshot from `pieces`; `None` if there is an error or anything after it, which [`read`] reports.
pub(super) fn read_pieces(pieces: &mut dyn Iterator<Item = io::Result<Vec<u8>>>) -> Option<Snapshot> {
    let mut decoder = Decoder::new(0);
    let (root, mut rest) = pickle::read_pieces(pieces, &mut decoder)?;
    while is_padding(&rest)
        && let Some(piece) = pieces.next()
    {
        rest.extend(piece.ok()?);
    }
    is_padding(&rest).then(|| decoder.finish(root).ok())?
}

/// Reads a pickled snapshot.
pub(super) fn read(bytes: &[u8], progress: &dyn Fn(u64)) -> Result<Snapshot, SnapshotError> {
    let mut decoder = Decoder::new(bytes.len());
    decoder.snapshot.entries.reserve(bytes.len() / MIN_ENTRY_BYTES);
    match read_mapped(bytes, || pickle::read(bytes, &mut decoder, progress)) {
        Ok(pickle) => {
            // An offset in `bytes` always fits.
            let end = usize::try_from(pickle.end).unwrap_or(usize::MAX);
            if !is_padding(bytes.get(end..).unwrap_or_default()) {
                let message =
                    format!("{} bytes after the end of the pickle at byte {end} were ignored", bytes.len() - end);
                decoder.snapshot.warnings.add(Code::TrailingBytes, message);
            }
            decoder.finish(pickle.root)
        }
        Err(_) if looks_like_log(bytes) => {
            let what = "it is text, not a pickle or JSON (byte 0); `oomscope explain` reads logs";
            Err(SnapshotError::NotSnapshot(what.to_owned()))
        }
        Err(error) => {
            let entries = decoder.snapshot.entries.len() as u64;
            Err(SnapshotError::Pickle { error, entries })
        }
    }
}

/// Builds a snapshot from the values of the pickle machine or the JSON reader.
#[derive(Default)]
pub(super) struct Decoder {
    snapshot: Snapshot,
    seen: KeysSeen,
    /// Unknown keys and actions, each reported once.
    unknown: FxHashSet<(&'static str, SymbolId)>,
    /// Whether there were more than [`MAX_WARNINGS`].
    has_more_unknown: bool,
    /// Names of frames that were too long, and those in their places.
    shortened: FxHashMap<SymbolId, SymbolId>,
    containers: Vec<Container>,
    scalars: Vec<Scalar>,
    /// Blocks below this row belong to a segment.
    blocks_placed: usize,
    /// Number of segments whose blocks do not add up to the recorded size.
    wrong_sums: u64,
    /// Buffer of `intern_stack`.
    frame_ids: Vec<FrameId>,
    /// For frames of generated code, the traceback of the original source.
    original_traces: FxHashMap<FrameId, SymbolId>,
    memory: MemoryBudget,
    /// Stream, pool, compile context and metadata of the last accepted entry, and the row of that context.
    last_context: Option<((u64, [Value; 3]), u32)>,
}

/// A list that is not a stack or a pair, or a dict that is not a record. Its items, or its keys and values, are frozen.
enum Container {
    /// A list of records.
    Rows(Box<Rows>),
    /// May still grow.
    Open(Vec<Value>),
    /// Part of another container.
    Frozen(Box<[Value]>),
    /// A stack, a pair or a record, identified when the container was frozen.
    Identified(Value),
}

// A file can create one of these with each byte.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Container>() == 24);

impl Container {
    /// The items of a generic container.
    fn items(&self) -> &[Value] {
        match self {
            Self::Open(items) => items,
            Self::Frozen(items) => items,
            Self::Rows(_) | Self::Identified(_) => &[],
        }
    }
}

/// Rows of one table, as ranges.
struct Rows {
    kind: NodeKind,
    runs: Vec<Range<u32>>,
}

impl Rows {
    fn new(kind: NodeKind, row: u32) -> Self {
        Self { kind, runs: std::iter::once(row..row + 1).collect() }
    }

    fn add(&mut self, more: Range<u32>) {
        match self.runs.last_mut() {
            Some(run) if run.end == more.start => run.end = more.end,
            _ => self.runs.push(more),
        }
    }
}

#[derive(Clone, Copy)]
enum Scalar {
    Float(f64),
    /// Beyond 60 bits.
    Int(i128),
    /// Bytes, or an integer beyond 128 bits: a snapshot has no use for them.
    Opaque,
}

/// Whether these are the first two keys of the usual trace entry.
fn starts_entry(first: SymbolId, second: SymbolId) -> bool {
    first == keys::ACTION && matches!(second, keys::ADDR | keys::DEVICE_FREE)
}

fn mixed_list_error<T>() -> Result<T, ErrorKind> {
    unexpected("a list mixes records of a snapshot with others".to_owned())
}

fn unexpected<T>(message: String) -> Result<T, ErrorKind> {
    Err(ErrorKind::Unexpected(message))
}

fn has_key(pairs: &[Value], key: SymbolId) -> bool {
    pairs.iter().step_by(2).any(|known| known.as_text() == Some(key))
}

/// The pairs whose key is a string. Snapshots have no others.
fn text_keyed(pairs: &[Value]) -> impl Iterator<Item = (SymbolId, Value)> {
    pairs.as_chunks().0.iter().filter_map(|[key, value]| Some((key.as_text()?, *value)))
}

impl Decoder {
    /// For `raw_bytes` of input.
    pub(super) fn new(raw_bytes: usize) -> Self {
        let snapshot = Snapshot { symbols: keys::symbols(), ..Snapshot::default() };
        Self { memory: MemoryBudget::new(raw_bytes as u64), snapshot, ..Self::default() }
    }

    /// Number of trace entries read so far.
    pub(super) fn entries(&self) -> u64 {
        self.snapshot.entries.len() as u64
    }

    fn scalar(&mut self, scalar: Scalar) -> Value {
        self.scalars.push(scalar);
        Value::node(SCALAR, to_u32(self.scalars.len() - 1))
    }

    fn add_container(&mut self, kind: NodeKind, container: Container) -> Result<Value, ErrorKind> {
        self.memory.add(CONTAINER_BYTES)?;
        self.containers.push(container);
        Ok(Value::node(kind, to_u32(self.containers.len() - 1)))
    }

    /// The container of a list (`kind` is [`LIST`]) or of a dict.
    fn container(&self, kind: NodeKind, value: Value) -> Option<&Container> {
        self.containers.get(value.as_node(kind)? as usize)
    }

    /// Adds `items` to `container`, which has this index.
    fn extend(&mut self, container: Value, index: u32, items: &[Value]) -> Result<Value, ErrorKind> {
        let items = self.freeze_all(items)?;
        match self.containers.get_mut(index as usize) {
            Some(Container::Open(all)) => {
                all.extend_from_slice(&items);
                Ok(container)
            }
            _ => Err(ErrorKind::Recursive),
        }
    }

    /// Reads a dict with these pairs as a record, if its keys identify one.
    #[inline]
    fn parse_record(&mut self, pairs: &[Value]) -> Result<Option<Value>, ErrorKind> {
        // Other records need a look at all keys.
        if let [first, _, second, ..] = pairs
            && let (Some(first), Some(second)) = (first.as_text(), second.as_text())
            && starts_entry(first, second)
        {
            return self.read_entry(text_keyed(pairs)).map(Some);
        }
        self.parse_record_by_all_keys(pairs)
    }

    fn parse_record_by_all_keys(&mut self, pairs: &[Value]) -> Result<Option<Value>, ErrorKind> {
        if has_key(pairs, keys::STAGE) || has_key(pairs, keys::SEGMENTS) {
            Ok(None) // an annotation, whose metadata may use any key; or the top level
        } else if has_key(pairs, keys::ACTION) && has_key(pairs, keys::SIZE) {
            self.read_entry(text_keyed(pairs)).map(Some)
        } else if has_key(pairs, keys::BLOCKS) {
            self.read_segment(pairs).map(Some)
        } else if has_key(pairs, keys::STATE) && has_key(pairs, keys::SIZE) {
            self.read_block(pairs).map(Some)
        } else if has_key(pairs, keys::FILENAME) && has_key(pairs, keys::NAME) {
            self.read_frame(pairs).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Freezes a generic dict or list, because another container uses it. Returns the record, stack or pair that it
    /// turns out to be, else `value`.
    ///
    /// Not recursive: its items were frozen when they were added.
    fn freeze(&mut self, value: Value) -> Result<Value, ErrorKind> {
        let Kind::Node(kind @ (DICT | LIST), index) = value.kind() else { return Ok(value) };
        let index = index as usize;
        let items = match self.containers.get_mut(index) {
            Some(Container::Open(items)) => std::mem::take(items),
            Some(Container::Identified(value)) => return Ok(*value),
            _ => return Ok(value),
        };
        let identified = if kind == DICT { self.parse_record(&items)? } else { self.pair_or_stack(&items)? };
        if let Some(container) = self.containers.get_mut(index) {
            *container = identified.map_or_else(|| Container::Frozen(items.into()), Container::Identified);
        }
        Ok(identified.unwrap_or(value))
    }

    fn freeze_all(&mut self, values: &[Value]) -> Result<Vec<Value>, ErrorKind> {
        self.memory.add(ITEM_BYTES.saturating_mul(values.len() as u64))?;
        let mut frozen = values.to_vec();
        for value in &mut frozen {
            *value = self.freeze(*value)?;
        }
        Ok(frozen)
    }

    /// A list of these items. More may follow if it `may_grow`.
    fn make_list(&mut self, items: &[Value], may_grow: bool) -> Result<Value, ErrorKind> {
        if !may_grow && let Some(value) = self.pair_or_stack(items)? {
            return Ok(value);
        }
        let mut rows: Option<Box<Rows>> = None;
        for item in items {
            match (self.freeze(*item)?.kind(), &mut rows) {
                (Kind::Node(kind @ (ENTRY | BLOCK | SEGMENT), row), None) => {
                    rows = Some(Box::new(Rows::new(kind, row)));
                }
                (Kind::Node(kind, row), Some(rows)) if kind == rows.kind => rows.add(row..row + 1),
                (_, Some(_)) => return mixed_list_error(),
                (_, None) => {
                    let items = self.freeze_all(items)?;
                    return self.add_container(LIST, Container::Open(items));
                }
            }
        }
        rows.map_or(Ok(Value::EMPTY_LIST), |rows| self.add_container(LIST, Container::Rows(rows)))
    }

    fn pair_or_stack(&mut self, items: &[Value]) -> Result<Option<Value>, ErrorKind> {
        if let [a, b] = items
            && let (Some(a), Some(b)) = (a.as_int(), b.as_int())
        {
            let pair = [a.cast_unsigned(), b.cast_unsigned()];
            return Ok(Some(Value::node(PAIR, self.snapshot.pools.intern(pair).0)));
        }
        Ok(self.intern_stack(items)?.map(|stack| Value::node(STACK, stack.0)))
    }

    /// The stack of these items, if all are frames (or text, as PyTorch 2.0 wrote C++ frames).
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
                Kind::Node(DICT, _) => match self.freeze(*item)?.kind() {
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

    /// The items of a stack or a pair; other values have none.
    fn expand(&self, value: Value) -> Vec<Value> {
        match value.kind() {
            Kind::Node(STACK, id) => {
                let stacks = &self.snapshot.stacks;
                let items = stacks.frames(StackId(id)).iter().map(|id| match stacks.frame(id) {
                    Frame { file, name, line: 0 } if self.snapshot.text(file).is_empty() => Value::text(name),
                    _ => Value::node(FRAME, id.0),
                });
                items.collect()
            }
            Kind::Node(PAIR, id) => {
                let pair = self.snapshot.pools.get(PoolId(id)).map(|n| Value::int(n.cast_signed()));
                pair.into_iter().collect::<Option<_>>().unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Notes an unknown key or action, for a warning.
    fn note_unknown(&mut self, place: &'static str, word: SymbolId) {
        if self.unknown.len() < MAX_WARNINGS {
            self.unknown.insert((place, word));
        } else if !self.unknown.contains(&(place, word)) {
            self.has_more_unknown = true;
        }
    }

    fn push_entry(&mut self, entry: TraceEntry) -> Value {
        let row = to_u32(self.snapshot.entries.len());
        self.snapshot.entries.push(entry);
        Value::node(ENTRY, row)
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
        if items.is_empty() { Ok(Value::EMPTY_LIST) } else { self.make_list(items, false) }
    }

    fn list(&mut self, so_far: Value, items: &[Value], may_grow: bool) -> Result<Value, ErrorKind> {
        let index = match so_far.kind() {
            Kind::EmptyList => return self.make_list(items, may_grow),
            Kind::Node(LIST, index) => index,
            Kind::Node(STACK | PAIR, _) => return Err(ErrorKind::Recursive),
            _ => return Err(ErrorKind::NotAContainer("list")),
        };
        let kind = match self.containers.get(index as usize) {
            Some(Container::Rows(rows)) => rows.kind,
            _ => return self.extend(so_far, index, items),
        };
        for item in items {
            let item = if item.as_node(kind).is_some() { *item } else { self.freeze(*item)? };
            match (item.as_node(kind), self.containers.get_mut(index as usize)) {
                (Some(row), Some(Container::Rows(rows))) => rows.add(row..row + 1),
                _ => return mixed_list_error(),
            }
        }
        Ok(so_far)
    }

    #[inline]
    fn dict(&mut self, so_far: Value, pairs: &[Value], may_grow: bool) -> Result<Value, ErrorKind> {
        match so_far.kind() {
            Kind::EmptyDict => {
                if !may_grow && let Some(record) = self.parse_record(pairs)? {
                    return Ok(record);
                }
                let pairs = self.freeze_all(pairs)?;
                self.add_container(DICT, Container::Open(pairs))
            }
            Kind::Node(DICT, index) => self.extend(so_far, index, pairs),
            Kind::Node(FRAME | ENTRY | BLOCK | SEGMENT, _) => {
                unexpected("a record of a snapshot is changed after it was complete".to_owned())
            }
            _ => Err(ErrorKind::NotAContainer("dict")),
        }
    }

    fn accept_keys(&mut self, keys: &[Value]) -> Option<Vec<Place>> {
        self.place_entry_keys(keys)
    }

    #[inline]
    fn record(&mut self, record: &Record) -> Option<Value> {
        self.read_accepted_entry(record)
    }

    fn add_input(&mut self, bytes: u64) {
        self.memory.raw_bytes += bytes;
    }

    fn check_memory(&self, machine_bytes: u64) -> Result<(), ErrorKind> {
        let scalars = (self.scalars.capacity() * size_of::<Scalar>()) as u64;
        self.memory.check(machine_bytes.saturating_add(scalars))
    }

    fn text_of(&self, value: Value) -> Option<&str> {
        if let Kind::Text(id) = value.kind() { Some(self.snapshot.symbols.get(id)) } else { None }
    }

    fn is_shareable(&self, value: Value) -> bool {
        matches!(value.kind(), Kind::Node(STACK, _))
    }
}
