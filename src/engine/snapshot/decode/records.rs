//! Reading records from the pairs of a dict: frames, trace entries, blocks and segments.

use super::super::trace::parse_action;
use super::super::{Action, Block, BlockState, Frame, Segment, Stacks, TraceEntry, keys};
use super::{
    BLOCK, Container, DICT, Decoder, FRAME, LIST, MAX_WARNINGS, PAIR, Rows, SCALAR, SEGMENT, STACK, Scalar, text_keyed,
    unexpected,
};
use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::base::units::without_middle;
use crate::base::warning::Code;
use crate::snapshot::pickle::{Builder as _, ErrorKind, Kind, Value, printable};

/// Longer file names and function names are truncated. Demangled names of C++ templates have thousands of bytes.
const MAX_NAME_BYTES: usize = 8192;

impl Decoder {
    /// `value` as an unsigned 64-bit number: an address, a size, a handle. Negative handles keep their bits.
    #[inline]
    pub(super) fn integer(&self, value: Value) -> Option<u64> {
        match value.kind() {
            Kind::Int(n) => Some(n.cast_unsigned()),
            Kind::Bool(b) => Some(u64::from(b)),
            Kind::Node(SCALAR, index) => match *self.scalars.get(index as usize)? {
                Scalar::Int(n) => u64::try_from(n).ok().or_else(|| i64::try_from(n).ok().map(i64::cast_unsigned)),
                // JSON written by JavaScript.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
                Scalar::Float(x) if (0.0..9.0e15).contains(&x) && x.fract() == 0.0 => Some(x as u64),
                _ => None,
            },
            _ => None,
        }
    }

    /// The Python type of `value`.
    pub(super) fn type_name(&self, value: Value) -> &'static str {
        match value.kind() {
            Kind::None => "None",
            Kind::Bool(_) => "a bool",
            Kind::Int(_) => "an integer",
            Kind::Text(_) => "a string",
            Kind::EmptyList | Kind::Node(STACK | LIST | PAIR, _) => "a list",
            Kind::Node(SCALAR, index) => match self.scalars.get(index as usize) {
                Some(Scalar::Float(_)) => "a float",
                Some(Scalar::Int(_)) => "a huge integer",
                _ => "bytes",
            },
            _ => "a dict",
        }
    }

    /// An integer field. Some backends write `None` for 0.
    #[inline]
    fn require_integer(&self, record: &str, key: SymbolId, value: Value) -> Result<u64, ErrorKind> {
        if let Some(n) = value.as_int() {
            return Ok(n.cast_unsigned());
        }
        match self.integer(value) {
            Some(n) => Ok(n),
            None if value.kind() == Kind::None => Ok(0),
            None => self.wrong_type(record, key, value, "an integer"),
        }
    }

    #[cold]
    fn wrong_type<T>(&self, record: &str, key: SymbolId, value: Value, wanted: &str) -> Result<T, ErrorKind> {
        let nth = if record == "trace entry" { format!(" {}", self.snapshot.entries.len()) } else { String::new() };
        let (key, found) = (self.snapshot.symbols.get(key), self.type_name(value));
        unexpected(format!("{record}{nth} has {found} as '{key}', where {wanted} belongs"))
    }

    #[inline]
    fn require_stack(&mut self, record: &str, key: SymbolId, value: Value) -> Result<StackId, ErrorKind> {
        if let Some(id) = value.as_node(STACK) {
            return Ok(StackId(id));
        }
        match value.kind() {
            Kind::EmptyList | Kind::None => Ok(Stacks::EMPTY),
            _ => match self.freeze(value)?.kind() {
                Kind::Node(STACK, id) => Ok(StackId(id)),
                _ => self.wrong_type(record, key, value, "a list of frames"),
            },
        }
    }

    fn require_pool(&mut self, record: &str, key: SymbolId, value: Value) -> Result<PoolId, ErrorKind> {
        if let Some(id) = value.as_node(PAIR) {
            return Ok(PoolId(id));
        }
        match self.freeze(value)?.as_node(PAIR) {
            Some(id) => Ok(PoolId(id)),
            None => self.wrong_type(record, key, value, "a pair of integers"),
        }
    }

    pub(super) fn read_frame(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        let mut frame = Frame { file: SymbolId(0), name: SymbolId(0), line: 0 };
        let mut original = None;
        for (key, value) in text_keyed(pairs) {
            match (key, value.kind()) {
                (keys::FILENAME, Kind::Text(text)) => frame.file = text,
                (keys::NAME, Kind::Text(text)) => frame.name = text,
                (keys::LINE, _) => {
                    let line = self.require_integer("a frame", key, value)?;
                    // No source file is that long: treat the line as unknown.
                    frame.line = u32::try_from(line).unwrap_or(0);
                }
                (keys::FILENAME | keys::NAME, Kind::None) => {
                    let empty = self.snapshot.symbols.intern("");
                    if key == keys::NAME { frame.name = empty } else { frame.file = empty }
                }
                (keys::FILENAME | keys::NAME, _) => return self.wrong_type("a frame", key, value, "a string"),
                (keys::FX_ORIGINAL_TRACE, Kind::Text(text)) => original = Some(text),
                // `fx_node_op` and others, only with `augment_with_fx_traces`.
                _ => {}
            }
        }
        let frame = Frame { file: self.shorten(frame.file), name: self.shorten(frame.name), ..frame };
        let id = self.snapshot.stacks.intern_frame(frame);
        if let Some(text) = original {
            self.original_traces.entry(id).or_insert(text);
        }
        Ok(Value::node(FRAME, id.0))
    }

    /// The id of `text`, truncated if it is longer than any name: thousands of frames may share one text of megabytes, and
    /// each frame is examined.
    #[inline]
    fn shorten(&mut self, text: SymbolId) -> SymbolId {
        if self.snapshot.text(text).len() <= MAX_NAME_BYTES {
            return text;
        }
        if let Some(short) = self.shortened.get(&text) {
            return *short;
        }
        let short = without_middle(self.snapshot.symbols.get(text));
        let short = self.snapshot.symbols.intern(&short);
        self.shortened.insert(text, short);
        short
    }

    #[inline]
    pub(super) fn read_entry(&mut self, pairs: impl Iterator<Item = (SymbolId, Value)>) -> Result<Value, ErrorKind> {
        const ENTRY: &str = "trace entry";
        let mut entry = TraceEntry::default();
        for (key, value) in pairs {
            self.note_entry_key(key);
            match key {
                keys::ACTION => {
                    let Some(word) = value.as_text() else {
                        return self.wrong_type(ENTRY, key, value, "a string");
                    };
                    entry.action = parse_action(word).unwrap_or_else(|| {
                        self.note_unknown("action", word);
                        Action::Other
                    });
                }
                keys::ADDR | keys::DEVICE_FREE => entry.addr = self.require_integer(ENTRY, key, value)?,
                keys::SIZE => entry.size = self.require_integer(ENTRY, key, value)?,
                keys::STREAM => entry.stream = self.require_integer(ENTRY, key, value)?,
                keys::TIME_US => entry.time_us = self.require_integer(ENTRY, key, value)?,
                keys::FRAMES => entry.stack = self.require_stack(ENTRY, key, value)?,
                keys::CPP_FRAMES if entry.stack == Stacks::EMPTY => {
                    entry.stack = self.require_stack(ENTRY, key, value)?;
                }
                keys::POOL_ID => entry.pool = Some(self.require_pool(ENTRY, key, value)?),
                keys::COMPILE_CONTEXT => entry.compile_context = value.as_text(),
                keys::USER_METADATA => entry.user_metadata = value.as_text(),
                keys::FORWARD_FRAMES => {
                    // Not essential: anything but a list of text lines is ignored.
                    entry.forward = self.require_stack(ENTRY, key, value).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(self.push_entry(entry))
    }

    pub(super) fn read_block(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        const RECORD: &str = "a block";
        let mut block = Block { requested_size: u64::MAX, ..Block::default() };
        let mut history = None;
        for (key, value) in text_keyed(pairs) {
            match key {
                keys::ADDRESS => block.address = self.require_integer(RECORD, key, value)?,
                keys::SIZE => block.size = self.require_integer(RECORD, key, value)?,
                keys::REQUESTED_SIZE => block.requested_size = self.require_integer(RECORD, key, value)?,
                keys::FRAMES => block.stack = self.require_stack(RECORD, key, value)?,
                keys::STATE => {
                    block.state = match value.kind() {
                        Kind::Text(keys::ACTIVE_ALLOCATED) => BlockState::ActiveAllocated,
                        Kind::Text(keys::ACTIVE_PENDING_FREE | keys::ACTIVE_AWAITING_FREE) => {
                            BlockState::ActivePendingFree
                        }
                        Kind::Text(keys::INACTIVE) => BlockState::Inactive,
                        Kind::Text(word) => {
                            let word = printable(self.snapshot.symbols.get(word));
                            return unexpected(format!("a block has the unknown state '{word}'"));
                        }
                        _ => return self.wrong_type(RECORD, key, value, "a string"),
                    }
                }
                keys::HISTORY => history = Some(value),
                _ => self.note_unknown("blocks", key),
            }
        }
        if let Some(history) = history {
            self.read_history(history, &mut block)?;
        }
        if block.requested_size == u64::MAX {
            block.requested_size = block.size;
        }
        block.extended_stack = block.stack;
        let row = to_u32(self.snapshot.blocks.len());
        self.snapshot.blocks.push(block);
        Ok(Value::node(BLOCK, row))
    }

    /// Before 2.1 a block had a list of its allocations, newest first, in place of a requested size and a stack.
    fn read_history(&mut self, history: Value, block: &mut Block) -> Result<(), ErrorKind> {
        let history = self.freeze(history)?;
        let newest = self.container(LIST, history).and_then(|entries| entries.items().first().copied());
        // A block that was never allocated has no history.
        for (key, value) in newest.map(|entry| self.pairs(entry)).unwrap_or_default() {
            match key {
                keys::REAL_SIZE if block.requested_size == u64::MAX => {
                    block.requested_size = self.require_integer("a block's history", key, value)?;
                }
                keys::FRAMES | keys::CPP_FRAMES if block.stack == Stacks::EMPTY => {
                    block.stack = self.require_stack("a block's history", key, value)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn read_segment(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        const RECORD: &str = "a segment";
        let mut segment = Segment::default();
        for (key, value) in text_keyed(pairs) {
            self.seen.segment.add(key);
            match key {
                keys::DEVICE => segment.device = self.require_integer(RECORD, key, value)?,
                keys::ADDRESS => segment.address = self.require_integer(RECORD, key, value)?,
                keys::TOTAL_SIZE => segment.total_size = self.require_integer(RECORD, key, value)?,
                keys::STREAM => segment.stream = self.require_integer(RECORD, key, value)?,
                keys::SEGMENT_TYPE => {
                    segment.is_small = match value.as_text() {
                        Some(keys::SMALL) => true,
                        Some(keys::LARGE) => false,
                        Some(word) => {
                            let word = printable(self.snapshot.symbols.get(word));
                            return unexpected(format!("a segment has the unknown type '{word}'"));
                        }
                        None => return self.wrong_type(RECORD, key, value, "a string"),
                    }
                }
                keys::IS_EXPANDABLE => segment.is_expandable = self.require_integer(RECORD, key, value)? != 0,
                keys::SEGMENT_POOL_ID => segment.pool = self.require_pool(RECORD, key, value)?,
                keys::FRAMES => segment.stack = self.require_stack(RECORD, key, value)?,
                keys::BLOCKS => segment.blocks = self.block_rows(value)?,
                // Sums over the blocks.
                keys::ALLOCATED_SIZE | keys::ACTIVE_SIZE | keys::REQUESTED_SIZE => {}
                _ => self.note_unknown("segments", key),
            }
        }
        self.check_blocks(&segment);
        let row = to_u32(self.snapshot.segments.len());
        self.snapshot.segments.push(segment);
        Ok(Value::node(SEGMENT, row))
    }

    fn block_rows(&mut self, value: Value) -> Result<std::ops::Range<usize>, ErrorKind> {
        let list = self.freeze(value)?;
        if list.kind() == Kind::EmptyList {
            return Ok(0..0);
        }
        let rows = self.record_rows(list).filter(|rows| rows.kind == BLOCK);
        let run = match rows.map(|rows| rows.runs.as_slice()) {
            None | Some([]) => return self.wrong_type("a segment", keys::BLOCKS, value, "a list of blocks"),
            Some([run]) if run.start as usize >= self.blocks_placed => run.start as usize..run.end as usize,
            Some(_) => return unexpected("a block belongs to two segments".to_owned()),
        };
        self.blocks_placed = run.end;
        Ok(run)
    }

    /// The rows of a list of records.
    pub(super) fn record_rows(&self, list: Value) -> Option<&Rows> {
        if let Container::Rows(rows) = self.container(LIST, list)? { Some(rows) } else { None }
    }

    /// Sets the addresses of blocks, which old releases do not record, and checks the sum of their sizes.
    fn check_blocks(&mut self, segment: &Segment) {
        let (mut next, mut sum) = (segment.address, 0_u64);
        for block in &mut self.snapshot.blocks[segment.blocks.clone()] {
            if block.address == 0 {
                block.address = next;
            }
            next = block.address.saturating_add(block.size);
            sum = sum.saturating_add(block.size);
        }
        if sum == segment.total_size {
            return;
        }
        self.wrong_sums += 1;
        if self.wrong_sums <= MAX_WARNINGS as u64 {
            let Segment { address, total_size, .. } = segment;
            let message =
                format!("the blocks of segment {address:#x} add up to {sum} bytes, but its total_size is {total_size}");
            self.snapshot.warnings.add(Code::SegmentSum, message);
        }
    }

    /// The pairs of a generic dict, at most 1,000: no record has more, and a file may refer to one huge dict a million
    /// times.
    pub(super) fn pairs(&self, value: Value) -> Vec<(SymbolId, Value)> {
        const MAX_PAIRS: usize = 1000;
        let pairs = self.container(DICT, value).map_or(&[][..], Container::items);
        text_keyed(pairs.get(..2 * MAX_PAIRS).unwrap_or(pairs)).collect()
    }

    /// The items of a list, stack or pair; other values have none.
    pub(super) fn items(&self, value: Value) -> Vec<Value> {
        match self.container(LIST, value) {
            // It was frozen to a stack or a pair.
            Some(Container::Identified(frozen)) => self.expand(*frozen),
            Some(list) => list.items().to_vec(),
            None => self.expand(value),
        }
    }

    pub(super) fn as_text(&self, value: Value) -> Option<&str> {
        self.text_of(value)
    }
}
