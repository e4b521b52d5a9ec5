//! A program as operations on numbered blocks, which can be removed, added and moved. A changed script always
//! converts to a program in which each free follows its request.

use super::program::{ListRange, Operation, OperationKind, Program};
use crate::base::ids::{StackId, to_u32};
use crate::snapshot::BlockState;

/// The operations of a program, to be changed and converted back.
#[derive(Debug, Clone)]
pub struct Script {
    pub ops: Vec<ScriptOp>,
    /// First the program's initial blocks in address order, then one block for each request.
    pub blocks: Vec<ScriptBlock>,
    /// Number of initial blocks.
    pub initial_count: usize,
}

/// An operation of the program, or a repetition of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptOp {
    /// Index of the program's operation.
    pub source: u32,
    pub kind: ScriptOpKind,
}

impl ScriptOp {
    /// A free of `block` that was moved to the program's operation `source`.
    pub fn moved_free(source: u32, block: u32) -> Self {
        Self { source, kind: ScriptOpKind::Free { block, is_moved: true } }
    }
}

/// Blocks are indexes into [`Script::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptOpKind {
    Alloc(u32),
    /// A free. One that was moved is never pending: the wait that was recorded belongs to another time.
    Free {
        block: u32,
        is_moved: bool,
    },
    /// Anything else, as recorded: a release, a snapshot.
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScriptBlock {
    /// Requested bytes; 0 if the block was removed.
    pub bytes: u64,
    pub stack: StackId,
    /// The program's operation that allocates the block; `None` for an initial block.
    pub allocated_at: Option<u32>,
    /// The program's operation that frees it; `None` if it stays.
    pub freed_at: Option<u32>,
    /// The allocation failed; the block never existed.
    pub is_failed: bool,
}

/// The peak of a script's live blocks.
#[derive(Debug, Clone)]
pub struct ScriptPeak {
    /// How many of the operations lead to it.
    pub ops: usize,
    /// The blocks that are live then, in order.
    pub blocks: Vec<u32>,
    pub bytes: u64,
}

/// No block, for an operation that neither allocates nor frees one, and in a slot that holds none.
const NONE: u32 = u32::MAX;

/// The blocks that each operation of a program names by slot.
struct BlocksByOp {
    /// `by_op[i]` is the block that operation `i` allocates or frees.
    by_op: Vec<u32>,
    /// `completed[i]` is the block freed by completion `i`.
    completed: Vec<u32>,
}

impl Script {
    pub fn from_program(program: &Program<'_>) -> Self {
        let initial_blocks = program.initial_blocks.iter();
        let mut blocks: Vec<ScriptBlock> = initial_blocks
            .map(|block| ScriptBlock { bytes: block.requested, stack: block.context, ..ScriptBlock::default() })
            .collect();
        let initial_count = blocks.len();
        let blocks_by_op = BlocksByOp::from_program(program);
        let mut ops = Vec::with_capacity(program.operations.len());
        for (index, operation) in program.operations.iter().enumerate() {
            let (source, block) = (to_u32(index), blocks_by_op.by_op[index]);
            let kind = match operation.kind {
                OperationKind::Alloc { size, context, slot, .. } => {
                    let (allocated_at, is_failed) = (Some(source), slot.is_none());
                    blocks.push(ScriptBlock { bytes: size, stack: context, allocated_at, freed_at: None, is_failed });
                    ScriptOpKind::Alloc(block)
                }
                OperationKind::Free { .. } if block != NONE => {
                    blocks[block as usize].freed_at = Some(source);
                    ScriptOpKind::Free { block, is_moved: false }
                }
                _ => ScriptOpKind::Other,
            };
            ops.push(ScriptOp { source, kind });
        }
        Self { ops, blocks, initial_count }
    }

    /// Adds a block equal to `block`, which no operation names yet.
    pub fn duplicate_block(&mut self, block: u32) -> u32 {
        self.blocks.push(self.blocks[block as usize]);
        to_u32(self.blocks.len() - 1)
    }

    /// Appends a request for a block of `bytes` that is otherwise equal to `block`, and is served. It is from `source`.
    pub fn push_copy(&mut self, block: u32, bytes: u64, source: u32) -> u32 {
        let copy = self.duplicate_block(block);
        let own = &mut self.blocks[copy as usize];
        (own.bytes, own.is_failed) = (bytes, false);
        self.ops.push(ScriptOp { source, kind: ScriptOpKind::Alloc(copy) });
        copy
    }

    /// The number of requests before operation `op` of the program, in its unchanged script.
    pub fn requests_before(&self, op: u32) -> usize {
        self.blocks[self.initial_count..].partition_point(|block| block.allocated_at < Some(op))
    }

    /// The peak of the live blocks, where `bytes_of` has the bytes of each. A failed request counts at its own peak.
    pub fn peak(&self, bytes_of: impl Fn(u32) -> u64) -> ScriptPeak {
        let mut live_bytes = (0..to_u32(self.initial_count)).map(&bytes_of).fold(0, u64::saturating_add);
        let (mut bytes, mut ops) = (live_bytes, 0);
        for (index, op) in self.ops.iter().enumerate() {
            match op.kind {
                ScriptOpKind::Alloc(block) => {
                    let after = live_bytes.saturating_add(bytes_of(block));
                    if after > bytes {
                        (bytes, ops) = (after, index + 1);
                    }
                    if !self.blocks[block as usize].is_failed {
                        live_bytes = after;
                    }
                }
                ScriptOpKind::Free { block, .. } => live_bytes = live_bytes.saturating_sub(bytes_of(block)),
                ScriptOpKind::Other => {}
            }
        }
        ScriptPeak { ops, blocks: self.live_blocks(ops), bytes }
    }

    /// The blocks that are live after the first `ops` operations, with that of the last one if it failed.
    fn live_blocks(&self, ops: usize) -> Vec<u32> {
        let mut is_live = vec![false; self.blocks.len()];
        is_live[..self.initial_count].fill(true);
        for (index, op) in self.ops[..ops].iter().enumerate() {
            match op.kind {
                ScriptOpKind::Alloc(block) => {
                    is_live[block as usize] = !self.blocks[block as usize].is_failed || index + 1 == ops;
                }
                ScriptOpKind::Free { block, .. } => is_live[block as usize] = false,
                ScriptOpKind::Other => {}
            }
        }
        (0..).zip(is_live).filter(|(_, is_live)| *is_live).map(|(block, _)| block).collect()
    }

    fn initial_block_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().take(self.initial_count).map(|block| block.bytes)
    }

    /// Whether the initial blocks differ from those of `program`. Their addresses are then unknown, and
    /// [`Self::to_program`] allocates them first.
    pub fn changes_initial_blocks(&self, program: &Program<'_>) -> bool {
        !self.initial_block_sizes().eq(program.initial_blocks.iter().map(|block| block.requested))
    }

    /// Converts the script back; it must be a script of `program`.
    pub fn to_program<'a>(&self, program: &Program<'a>) -> Program<'a> {
        let blocks_by_op = BlocksByOp::from_program(program);
        let mut writer = ProgramWriter::new(self, program);
        for op in &self.ops {
            writer.write_op(op, &blocks_by_op);
        }
        let mut written = writer.written;
        if !self.changes_initial_blocks(program) {
            return written;
        }
        for (block, bytes) in written.initial_blocks.iter_mut().zip(self.initial_block_sizes()) {
            block.requested = bytes;
        }
        written.with_empty_start()
    }
}

impl BlocksByOp {
    fn from_program(program: &Program<'_>) -> Self {
        let initial_count = to_u32(program.initial_blocks.len());
        let mut in_slot: Vec<u32> = (0..initial_count).collect();
        in_slot.resize(program.slot_count, NONE);
        let mut next_block = initial_count;
        let mut completed = vec![NONE; program.completed.len()];
        let by_op = program.operations.iter().map(|operation| {
            if let OperationKind::Alloc { completions, .. } | OperationKind::Release { completions, .. } =
                operation.kind
            {
                for index in completions.range() {
                    completed[index] = in_slot[program.completed[index] as usize];
                }
            }
            match operation.kind {
                OperationKind::Alloc { slot, .. } => {
                    if let Some(slot) = slot {
                        in_slot[slot as usize] = next_block;
                    }
                    next_block += 1;
                    next_block - 1
                }
                OperationKind::Free { slot, .. } => in_slot[slot as usize],
                _ => NONE,
            }
        });
        Self { by_op: by_op.collect(), completed }
    }
}

/// Whether a block exists at this point of the written program, and its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockStatus {
    Absent,
    Live(u32),
    Pending(u32),
}

struct ProgramWriter<'s, 'p, 'a> {
    script: &'s Script,
    program: &'p Program<'a>,
    written: Program<'a>,
    statuses: Vec<BlockStatus>,
    free_slots: Vec<u32>,
    /// The program's first operation whose completions are not collected.
    next_source: usize,
    /// Blocks whose frees the recording has completed by now, and no written operation has.
    completed_blocks: Vec<u32>,
    entry_index: u32,
}

impl<'s, 'p, 'a> ProgramWriter<'s, 'p, 'a> {
    fn new(script: &'s Script, program: &'p Program<'a>) -> Self {
        let statuses = script.blocks.iter().enumerate().map(|(index, block)| match program.initial_blocks.get(index) {
            Some(_) if block.bytes == 0 => BlockStatus::Absent,
            Some(initial) if initial.state == BlockState::ActivePendingFree => BlockStatus::Pending(to_u32(index)),
            Some(_) => BlockStatus::Live(to_u32(index)),
            None => BlockStatus::Absent,
        });
        Self {
            statuses: statuses.collect(),
            written: Program {
                device: program.device,
                initial_segments: program.initial_segments.clone(),
                initial_blocks: program.initial_blocks.clone(),
                operations: Vec::with_capacity(script.ops.len()),
                completed: Vec::new(),
                released_pools: program.released_pools.clone(),
                slot_count: program.initial_blocks.len(),
            },
            script,
            program,
            free_slots: Vec::new(),
            next_source: 0,
            completed_blocks: Vec::new(),
            entry_index: 0,
        }
    }

    fn push(&mut self, kind: OperationKind) {
        self.written.operations.push(Operation { entry_index: self.entry_index, kind });
    }

    /// Collects the completions that were recorded up to operation `source`.
    fn collect_completions(&mut self, source: usize, blocks_by_op: &BlocksByOp) {
        while self.next_source <= source {
            let operation = &self.program.operations[self.next_source];
            self.entry_index = operation.entry_index.max(self.entry_index);
            if let OperationKind::Alloc { completions, .. } | OperationKind::Release { completions, .. } =
                operation.kind
            {
                self.completed_blocks.extend(completions.slice(&blocks_by_op.completed));
            }
            self.next_source += 1;
        }
    }

    /// Completes the collected frees in the next operation.
    fn write_completions(&mut self) -> ListRange {
        let start = self.written.completed.len();
        for block in std::mem::take(&mut self.completed_blocks) {
            // Completions of unknown blocks are `NONE`.
            let Some(status) = self.statuses.get_mut(block as usize) else { continue };
            if let BlockStatus::Pending(slot) = *status {
                *status = BlockStatus::Absent;
                self.written.completed.push(slot);
                self.recycle_slot(slot);
            }
        }
        ListRange { start: to_u32(start), len: to_u32(self.written.completed.len() - start) }
    }

    /// The slots of initial blocks are never reused.
    fn recycle_slot(&mut self, slot: u32) {
        if slot as usize >= self.program.initial_blocks.len() {
            self.free_slots.push(slot);
        }
    }

    fn write_op(&mut self, op: &ScriptOp, blocks_by_op: &BlocksByOp) {
        self.collect_completions(op.source as usize, blocks_by_op);
        let source = self.program.operations[op.source as usize].kind;
        match (op.kind, source) {
            (ScriptOpKind::Alloc(block), OperationKind::Alloc { stream, pool, context, .. }) => {
                let ScriptBlock { bytes: size, is_failed, .. } = self.script.blocks[block as usize];
                if size == 0 || self.statuses[block as usize] != BlockStatus::Absent {
                    return;
                }
                let completions = self.write_completions();
                let slot = (!is_failed).then(|| {
                    self.free_slots.pop().unwrap_or_else(|| {
                        self.written.slot_count += 1;
                        to_u32(self.written.slot_count - 1)
                    })
                });
                if let Some(slot) = slot {
                    self.statuses[block as usize] = BlockStatus::Live(slot);
                }
                self.push(OperationKind::Alloc { size, stream, pool, context, slot, completions });
            }
            (ScriptOpKind::Free { block, is_moved }, _) => {
                // The request was removed, or comes later now.
                let BlockStatus::Live(slot) = self.statuses[block as usize] else { return };
                let (is_pending, context) = match source {
                    OperationKind::Free { is_pending, context, .. } => (is_pending && !is_moved, context),
                    _ => (false, StackId::default()),
                };
                if is_pending {
                    self.statuses[block as usize] = BlockStatus::Pending(slot);
                } else {
                    self.statuses[block as usize] = BlockStatus::Absent;
                    self.recycle_slot(slot);
                }
                self.push(OperationKind::Free { slot, is_pending, context });
            }
            (ScriptOpKind::Other, OperationKind::Release { scope, context, .. }) => {
                let completions = self.write_completions();
                self.push(OperationKind::Release { scope, context, completions });
            }
            (ScriptOpKind::Other, kind @ (OperationKind::Freeable(_) | OperationKind::Snapshot(_))) => self.push(kind),
            (ScriptOpKind::Other | ScriptOpKind::Alloc(_), _) => {}
        }
    }
}
