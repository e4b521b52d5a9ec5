//! A program's calls as acts on blocks, each of which has a number of its own, so that acts can be left out, added
//! and moved. Whatever was done to it, a script makes a program in which each free follows its request.

use super::program::{ListRange, Operation, OperationKind, Program};
use crate::base::ids::{StackId, row};
use crate::snapshot::BlockState;

/// The calls of a program, to be changed and made a program again.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) acts: Vec<Op>,
    /// Every block: first those that were held before the recording, in address order, then those asked for.
    pub(crate) blocks: Vec<Block>,
    /// How many were held before.
    pub(crate) held: usize,
}

/// One call, or a repetition of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    /// The operation that it is, or that it repeats.
    pub(crate) like: u32,
    pub(crate) what: What,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The program asks for a block.
    Ask(u32),
    /// It frees one; as recorded, or elsewhere: then no other stream is in the way.
    Free { block: u32, is_moved: bool },
    /// Anything else, as recorded: memory given back, a snapshot.
    Other,
}

/// A block of the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Bytes asked for; 0 for one that is not asked for.
    pub(crate) bytes: u64,
    pub(crate) stack: StackId,
    /// The operations that ask for it and free it; none of those held before, and of those kept.
    pub(crate) asked: Option<u32>,
    pub(crate) freed: Option<u32>,
    /// Whether it was asked for in vain: no program holds it.
    pub(crate) is_failed: bool,
}

/// What is in a slot, or of a block.
const NONE: u32 = u32::MAX;

/// What the operations of a program do, by block.
struct Reading {
    /// Of each operation, the block that it asks for or frees.
    of_operation: Vec<u32>,
    /// Of each completion in the program's list, the block.
    completed: Vec<u32>,
}

impl Script {
    /// The calls of `program`.
    pub(crate) fn of(program: &Program<'_>) -> Self {
        let held = program.residents.len();
        let mut blocks: Vec<Block> = program
            .residents
            .iter()
            .map(|resident| Block {
                bytes: resident.requested,
                stack: resident.context,
                asked: None,
                freed: None,
                is_failed: false,
            })
            .collect();
        let reading = Reading::of(program);
        let mut acts = Vec::with_capacity(program.operations.len());
        for (index, operation) in program.operations.iter().enumerate() {
            let (like, block) = (row(index), reading.of_operation[index]);
            let what = match operation.kind {
                OperationKind::Malloc { size, context, slot, .. } => {
                    blocks.push(Block {
                        bytes: size,
                        stack: context,
                        asked: Some(like),
                        freed: None,
                        is_failed: slot.is_none(),
                    });
                    What::Ask(block)
                }
                OperationKind::Free { .. } if block != NONE => {
                    blocks[block as usize].freed = Some(like);
                    What::Free { block, is_moved: false }
                }
                _ => What::Other,
            };
            acts.push(Op { like, what });
        }
        Self { acts, blocks, held }
    }

    /// One more block like `block`; it is in no act yet.
    pub(crate) fn add_like(&mut self, block: u32) -> u32 {
        self.blocks.push(self.blocks[block as usize]);
        row(self.blocks.len() - 1)
    }

    /// The bytes of each block that was held before the recording.
    fn bytes_held(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.iter().take(self.held).map(|block| block.bytes)
    }

    /// Whether blocks of before the recording are others than `program` has: it then asks for them first, since
    /// where they would have lain no recording says.
    pub(crate) fn begins_otherwise(&self, program: &Program<'_>) -> bool {
        let was = program.residents.iter().map(|resident| resident.requested);
        !self.bytes_held().eq(was)
    }

    /// The script as a program, where it is one of `program`'s.
    pub(crate) fn program<'a>(&self, program: &Program<'a>) -> Program<'a> {
        let reading = Reading::of(program);
        let mut writer = Writer::new(self, program);
        for act in &self.acts {
            writer.write(act, &reading);
        }
        let mut written = writer.written;
        if !self.begins_otherwise(program) {
            return written;
        }
        for (resident, bytes) in written.residents.iter_mut().zip(self.bytes_held()) {
            resident.requested = bytes;
        }
        written.from_empty()
    }
}

impl Reading {
    fn of(program: &Program<'_>) -> Self {
        let mut in_slot: Vec<u32> = (0..row(program.residents.len())).collect();
        in_slot.resize(program.slots, NONE);
        let mut next = row(program.residents.len());
        let mut completed = vec![NONE; program.completed.len()];
        let mut complete = |completions: ListRange, in_slot: &[u32]| {
            for place in completions.places() {
                completed[place] = in_slot[program.completed[place] as usize];
            }
        };
        let of_operation = program.operations.iter().map(|operation| match operation.kind {
            OperationKind::Malloc { slot, completions, .. } => {
                complete(completions, &in_slot);
                if let Some(slot) = slot {
                    in_slot[slot as usize] = next;
                }
                next += 1;
                next - 1
            }
            OperationKind::Free { slot, .. } => in_slot[slot as usize],
            OperationKind::Release { completions, .. } => {
                complete(completions, &in_slot);
                NONE
            }
            OperationKind::Freeable(_)
            | OperationKind::Snapshot(_)
            | OperationKind::Workspace { .. } => NONE,
        });
        let of_operation = of_operation.collect();
        Self { of_operation, completed }
    }
}

/// What the program has of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Nothing,
    Held(u32),
    Pending(u32),
}

struct Writer<'s, 'p, 'a> {
    script: &'s Script,
    program: &'p Program<'a>,
    written: Program<'a>,
    states: Vec<State>,
    vacant: Vec<u32>,
    /// The next operation of the program whose completions have not been made.
    next: usize,
    /// Completed, and not told to any call yet.
    waiting: Vec<u32>,
    /// The entry of the last call.
    at: u32,
}

impl<'s, 'p, 'a> Writer<'s, 'p, 'a> {
    fn new(script: &'s Script, program: &'p Program<'a>) -> Self {
        let states = script.blocks.iter().enumerate().map(|(block, what)| {
            match program.residents.get(block) {
                Some(_) if what.bytes == 0 => State::Nothing,
                Some(it) if it.state == BlockState::ActivePendingFree => State::Pending(row(block)),
                Some(_) => State::Held(row(block)),
                None => State::Nothing,
            }
        });
        Self {
            states: states.collect(),
            written: Program {
                operations: Vec::with_capacity(script.acts.len()),
                completed: Vec::new(),
                slots: program.residents.len(),
                ..program.clone()
            },
            script,
            program,
            vacant: Vec::new(),
            next: 0,
            waiting: Vec::new(),
            at: 0,
        }
    }

    fn push(&mut self, kind: OperationKind) {
        self.written.operations.push(Operation { at: self.at, kind });
    }

    /// Makes what the recording completed up to operation `like` wait for a call to be told to.
    fn pass(&mut self, like: usize, reading: &Reading) {
        while self.next <= like {
            let operation = &self.program.operations[self.next];
            self.at = operation.at.max(self.at);
            if let OperationKind::Malloc { completions, .. }
            | OperationKind::Release { completions, .. } = operation.kind
            {
                self.waiting.extend(completions.of(&reading.completed));
            }
            self.next += 1;
        }
    }

    /// What is told to a call as completed.
    fn completions(&mut self) -> ListRange {
        let first = self.written.completed.len();
        for block in std::mem::take(&mut self.waiting) {
            let Some(state) = self.states.get_mut(block as usize) else { continue };
            if let State::Pending(slot) = *state {
                *state = State::Nothing;
                self.written.completed.push(slot);
                self.vacate(slot);
            }
        }
        ListRange { first: row(first), count: row(self.written.completed.len() - first) }
    }

    /// Slots of blocks of before the recording are theirs for good.
    fn vacate(&mut self, slot: u32) {
        if slot as usize >= self.program.residents.len() {
            self.vacant.push(slot);
        }
    }

    fn write(&mut self, act: &Op, reading: &Reading) {
        self.pass(act.like as usize, reading);
        let kind = self.program.operations[act.like as usize].kind;
        match (act.what, kind) {
            (What::Ask(block), OperationKind::Malloc { stream, pool, context, .. }) => {
                let Block { bytes: size, is_failed, .. } = self.script.blocks[block as usize];
                if size == 0 || self.states[block as usize] != State::Nothing {
                    return;
                }
                let completions = self.completions();
                if is_failed {
                    let slot = None;
                    self.push(OperationKind::Malloc {
                        size,
                        stream,
                        pool,
                        context,
                        slot,
                        completions,
                    });
                    return;
                }
                let slot = self.vacant.pop().unwrap_or_else(|| {
                    self.written.slots += 1;
                    row(self.written.slots - 1)
                });
                self.states[block as usize] = State::Held(slot);
                let slot = Some(slot);
                self.push(OperationKind::Malloc { size, stream, pool, context, slot, completions });
            }
            (What::Free { block, is_moved }, _) => {
                let State::Held(slot) = self.states[block as usize] else { return };
                let (waits, context) = match kind {
                    OperationKind::Free { waits, context, .. } => (waits && !is_moved, context),
                    _ => (false, StackId::default()),
                };
                if waits {
                    self.states[block as usize] = State::Pending(slot);
                } else {
                    self.states[block as usize] = State::Nothing;
                    self.vacate(slot);
                }
                self.push(OperationKind::Free { slot, waits, context });
            }
            (What::Other, OperationKind::Release { scope, context, .. }) => {
                let completions = self.completions();
                self.push(OperationKind::Release { scope, context, completions });
            }
            (What::Other, kind @ (OperationKind::Freeable(_) | OperationKind::Snapshot(_))) => {
                self.push(kind);
            }
            (What::Other | What::Ask(_), _) => {}
        }
    }
}
