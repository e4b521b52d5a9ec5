//! One dict, one record: frames, trace entries, blocks and segments from their pairs.

use super::super::keys;
use super::super::trace::action_of;
use super::super::{Block, BlockState, Frame, Segment, Stacks, TraceEntry};
use super::{BLOCK, SEGMENT, WARNED};
use super::{DICT, Decoder, Dict, FRAME, LIST, List, PAIR, SCALAR, STACK, Scalar, unexpected};
use crate::base::ids::{PoolId, StackId, SymbolId, to_u32};
use crate::base::warning::Code;
use crate::snapshot::pickle::{Builder as _, ErrorKind, Kind, Value, printable};

/// The pairs whose key is a string; others mean nothing in a snapshot.
fn fields(pairs: &[Value]) -> impl Iterator<Item = (SymbolId, Value)> {
    pairs.chunks_exact(2).filter_map(|pair| match pair {
        [key, value] => key.as_text().map(|key| (key, *value)),
        _ => None,
    })
}

impl Decoder {
    /// `value` as an unsigned 64-bit number: addresses, sizes, handles. Negative handles keep their
    /// bits.
    #[inline]
    pub(super) fn integer(&self, value: Value) -> Option<u64> {
        match value.kind() {
            Kind::Int(n) => Some(n.cast_unsigned()),
            Kind::Bool(b) => Some(u64::from(b)),
            Kind::Node(SCALAR, index) => match *self.scalars.get(index as usize)? {
                Scalar::Int(n) => {
                    u64::try_from(n).ok().or_else(|| i64::try_from(n).ok().map(i64::cast_unsigned))
                }
                // JSON that went through JavaScript.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "checked"
                )]
                Scalar::Float(x) if (0.0..9.0e15).contains(&x) && x.fract() == 0.0 => {
                    Some(x as u64)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// What `value` is, in Python's words.
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

    /// A field that must be a number; `None` counts as 0, as some backends write it.
    #[inline]
    fn number(&self, record: &str, key: SymbolId, value: Value) -> Result<u64, ErrorKind> {
        if let Some(n) = value.as_int() {
            return Ok(n.cast_unsigned());
        }
        match self.integer(value) {
            Some(n) => Ok(n),
            None if value.kind() == Kind::None => Ok(0),
            None => self.wrong(record, key, value, "an integer"),
        }
    }

    #[cold]
    fn wrong<T>(
        &self,
        record: &str,
        key: SymbolId,
        value: Value,
        wanted: &str,
    ) -> Result<T, ErrorKind> {
        let nth = match record {
            "trace entry" => format!(" {}", self.snapshot.entries.len()),
            _ => String::new(),
        };
        let (key, found) = (self.snapshot.symbols.get(key), self.type_name(value));
        unexpected(format!("{record}{nth} has {found} as '{key}', where {wanted} belongs"))
    }

    #[inline]
    fn stack(&mut self, record: &str, key: SymbolId, value: Value) -> Result<StackId, ErrorKind> {
        if let Some(id) = value.as_node(STACK) {
            return Ok(StackId(id));
        }
        match value.kind() {
            Kind::EmptyList | Kind::None => Ok(Stacks::EMPTY),
            _ => match self.settle(value)?.kind() {
                Kind::Node(STACK, id) => Ok(StackId(id)),
                _ => self.wrong(record, key, value, "a list of frames"),
            },
        }
    }

    fn pool(&mut self, record: &str, key: SymbolId, value: Value) -> Result<PoolId, ErrorKind> {
        if let Some(id) = value.as_node(PAIR) {
            return Ok(PoolId(id));
        }
        match self.settle(value)?.as_node(PAIR) {
            Some(id) => Ok(PoolId(id)),
            None => self.wrong(record, key, value, "a pair of integers"),
        }
    }

    pub(super) fn frame(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        let mut frame = Frame { file: SymbolId(0), name: SymbolId(0), line: 0 };
        let mut original = None;
        for (key, value) in fields(pairs) {
            match (key, value.kind()) {
                (keys::FILENAME, Kind::Text(text)) => frame.file = text,
                (keys::NAME, Kind::Text(text)) => frame.name = text,
                (keys::LINE, _) => {
                    let line = self.number("a frame", key, value)?;
                    frame.line = u32::try_from(line).unwrap_or(0);
                }
                (keys::FILENAME | keys::NAME, Kind::None) => {
                    let empty = self.snapshot.symbols.intern("");
                    if key == keys::NAME { frame.name = empty } else { frame.file = empty }
                }
                (keys::FILENAME | keys::NAME, _) => {
                    return self.wrong("a frame", key, value, "a string");
                }
                (keys::FX_ORIGINAL_TRACE, Kind::Text(text)) => original = Some(text),
                // fx_node_op and kin, only with augment_with_fx_traces.
                _ => {}
            }
        }
        let id = self.snapshot.stacks.intern_frame(frame);
        if let Some(text) = original {
            self.originals.entry(id).or_insert(text);
        }
        Ok(Value::node(FRAME, id.0))
    }

    #[inline]
    pub(super) fn event(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        const ENTRY: &str = "trace entry";
        let mut event = TraceEntry::new();
        for (key, value) in fields(pairs) {
            self.seen.event.add(key);
            match key {
                keys::ACTION => {
                    let Some(word) = value.as_text() else {
                        return self.wrong(ENTRY, key, value, "a string");
                    };
                    event.action = action_of(word).unwrap_or_else(|| {
                        self.unknown("action", word);
                        crate::allocator::trace_action::Action::Other
                    });
                }
                keys::ADDR | keys::DEVICE_FREE => event.addr = self.number(ENTRY, key, value)?,
                keys::SIZE => event.size = self.number(ENTRY, key, value)?,
                keys::STREAM => event.stream = self.number(ENTRY, key, value)?,
                keys::TIME_US => event.time_us = self.number(ENTRY, key, value)?,
                keys::FRAMES => event.stack = self.stack(ENTRY, key, value)?,
                keys::CPP_FRAMES if event.stack == Stacks::EMPTY => {
                    event.stack = self.stack(ENTRY, key, value)?;
                }
                keys::POOL_ID => event.pool = Some(self.pool(ENTRY, key, value)?),
                keys::COMPILE_CONTEXT => {
                    event.compile_context = value.as_text();
                }
                keys::USER_METADATA => {
                    event.user_metadata = value.as_text();
                }
                keys::FORWARD_FRAMES => {
                    event.forward = self.stack(ENTRY, key, value).unwrap_or_default();
                }
                keys::CPP_FRAMES | keys::INTERNAL_METADATA => {}
                _ => self.unknown("trace entries", key),
            }
        }
        Ok(self.push_event(event))
    }

    pub(super) fn block(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        const BLOCK_: &str = "a block";
        let mut block = Block {
            address: 0,
            size: 0,
            requested_size: u64::MAX,
            state: BlockState::Inactive,
            stack: Stacks::EMPTY,
            made_by: Stacks::EMPTY,
        };
        let mut history = None;
        for (key, value) in fields(pairs) {
            self.seen.block.add(key);
            match key {
                keys::ADDRESS => block.address = self.number(BLOCK_, key, value)?,
                keys::SIZE => block.size = self.number(BLOCK_, key, value)?,
                keys::REQUESTED_SIZE => block.requested_size = self.number(BLOCK_, key, value)?,
                keys::FRAMES => block.stack = self.stack(BLOCK_, key, value)?,
                keys::STATE => {
                    block.state = match value.kind() {
                        Kind::Text(keys::ACTIVE_ALLOCATED) => BlockState::ActiveAllocated,
                        Kind::Text(keys::ACTIVE_PENDING_FREE | keys::ACTIVE_AWAITING_FREE) => {
                            BlockState::ActivePendingFree
                        }
                        Kind::Text(keys::INACTIVE) => BlockState::Inactive,
                        Kind::Text(word) => {
                            let word = self.snapshot.symbols.get(word);
                            let word = printable(word);
                            return unexpected(format!("a block has the unknown state '{word}'"));
                        }
                        _ => return self.wrong(BLOCK_, key, value, "a string"),
                    }
                }
                keys::HISTORY => history = Some(value),
                _ => self.unknown("blocks", key),
            }
        }
        if let Some(history) = history {
            self.legacy_history(history, &mut block)?;
        }
        if block.requested_size == u64::MAX {
            block.requested_size = block.size;
        }
        block.made_by = block.stack;
        let row = to_u32(self.snapshot.blocks.len());
        self.snapshot.blocks.push(block);
        Ok(Value::node(BLOCK, row))
    }

    /// Before 2.1 a block listed what had been allocated in it, newest first, in place of its own
    /// requested size and stack.
    fn legacy_history(&mut self, history: Value, block: &mut Block) -> Result<(), ErrorKind> {
        let newest = match self.settle(history)?.kind() {
            Kind::Node(LIST, index) => match self.lists.get(index as usize) {
                Some(List::Open(entries)) => entries.first().copied(),
                Some(List::Closed(entries)) => entries.first().copied(),
                _ => None,
            },
            _ => None,
        };
        for (key, value) in newest.map(|entry| self.pairs(entry)).unwrap_or_default() {
            match key {
                keys::REAL_SIZE if block.requested_size == u64::MAX => {
                    block.requested_size = self.number("a block's history", key, value)?;
                }
                keys::FRAMES | keys::CPP_FRAMES if block.stack == Stacks::EMPTY => {
                    block.stack = self.stack("a block's history", key, value)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn segment(&mut self, pairs: &[Value]) -> Result<Value, ErrorKind> {
        const SEGMENT_: &str = "a segment";
        let mut segment = Segment {
            device: 0,
            address: 0,
            total_size: 0,
            stream: 0,
            is_small: false,
            is_expandable: false,
            pool: super::super::Pools::DEFAULT,
            stack: Stacks::EMPTY,
            blocks: 0..0,
        };
        for (key, value) in fields(pairs) {
            self.seen.segment.add(key);
            match key {
                keys::DEVICE => segment.device = self.number(SEGMENT_, key, value)?,
                keys::ADDRESS => segment.address = self.number(SEGMENT_, key, value)?,
                keys::TOTAL_SIZE => segment.total_size = self.number(SEGMENT_, key, value)?,
                keys::STREAM => segment.stream = self.number(SEGMENT_, key, value)?,
                keys::SEGMENT_TYPE => {
                    segment.is_small = match value.as_text() {
                        Some(keys::SMALL) => true,
                        Some(keys::LARGE) => false,
                        Some(word) => {
                            let word = printable(self.snapshot.symbols.get(word));
                            return unexpected(format!("a segment has the unknown type '{word}'"));
                        }
                        None => return self.wrong(SEGMENT_, key, value, "a string"),
                    }
                }
                keys::IS_EXPANDABLE => {
                    segment.is_expandable = self.number(SEGMENT_, key, value)? != 0;
                }
                keys::SEGMENT_POOL_ID => segment.pool = self.pool(SEGMENT_, key, value)?,
                keys::FRAMES => segment.stack = self.stack(SEGMENT_, key, value)?,
                keys::BLOCKS => segment.blocks = self.block_rows(value)?,
                // Sums over the blocks, which we add up ourselves.
                keys::ALLOCATED_SIZE | keys::ACTIVE_SIZE | keys::REQUESTED_SIZE => {}
                _ => self.unknown("segments", key),
            }
        }
        self.place_blocks(&segment);
        let row = to_u32(self.snapshot.segments.len());
        self.snapshot.segments.push(segment);
        Ok(Value::node(SEGMENT, row))
    }

    fn block_rows(&mut self, value: Value) -> Result<std::ops::Range<usize>, ErrorKind> {
        let runs = match self.settle(value)?.kind() {
            Kind::EmptyList => return Ok(0..0),
            Kind::Node(LIST, index) => match self.lists.get(index as usize) {
                Some(List::Rows(rows)) if rows.kind == BLOCK => rows.runs.as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        match runs {
            [] => self.wrong("a segment", keys::BLOCKS, value, "a list of blocks"),
            [run] if run.start as usize >= self.blocks_placed => {
                self.blocks_placed = run.end as usize;
                Ok(run.start as usize..run.end as usize)
            }
            _ => unexpected("a block belongs to two segments".to_owned()),
        }
    }

    /// Gives the blocks of releases that write no addresses theirs, and checks the sum.
    fn place_blocks(&mut self, segment: &Segment) {
        let mut next = segment.address;
        for block in self.snapshot.blocks.get_mut(segment.blocks.clone()).unwrap_or_default() {
            if block.address == 0 {
                block.address = next;
            }
            next = block.address.saturating_add(block.size);
        }
        let sum: u64 = self
            .snapshot
            .blocks
            .get(segment.blocks.clone())
            .unwrap_or_default()
            .iter()
            .fold(0, |sum, block| sum.saturating_add(block.size));
        if sum == segment.total_size {
            return;
        }
        self.bad_sums += 1;
        if self.bad_sums <= WARNED as u64 {
            self.snapshot.warnings.add(
                Code::SegmentSum,
                format!(
                    "the blocks of segment {:#x} add up to {sum} bytes, its total_size says {}",
                    segment.address, segment.total_size
                ),
            );
        }
    }

    /// The pairs of a generic dict: its first thousand, no record has more, and a file may refer to
    /// one huge dict a million times.
    pub(super) fn pairs(&self, value: Value) -> Vec<(SymbolId, Value)> {
        const MOST: usize = 1000;
        let dict = value.as_node(DICT).and_then(|index| self.dicts.get(index as usize));
        let pairs: &[Value] = match dict {
            Some(Dict::Open(pairs)) => pairs,
            Some(Dict::Closed(pairs)) => pairs,
            _ => &[],
        };
        fields(pairs.get(..2 * MOST).unwrap_or(pairs)).collect()
    }

    /// The items of a list of anything.
    pub(super) fn items(&self, value: Value) -> Vec<Value> {
        match value.kind() {
            Kind::Node(LIST, index) => match self.lists.get(index as usize) {
                Some(List::Open(items)) => items.clone(),
                Some(List::Closed(items)) => items.to_vec(),
                Some(List::Settled(settled)) => self.reopen(*settled).unwrap_or_default(),
                _ => Vec::new(),
            },
            _ => self.reopen(value).unwrap_or_default(),
        }
    }

    /// `value` as text, if it is that.
    pub(super) fn as_text(&self, value: Value) -> Option<&str> {
        self.text_of(value)
    }
}
