//! Continues a program after its last request failed, with the operations that followed the same request one
//! training step earlier.

use rustc_hash::{FxHashMap, FxHashSet};

use super::program::{ListRange, Operation, OperationKind, Program};
use crate::allocator::conf::Settings;
use crate::base::ids::{StackId, to_u32};

/// A program that continues for one step after its last request failed.
#[derive(Debug)]
pub struct Continuation<'a> {
    /// The recorded operations. Then the failed request again, now served, and the operations that followed it one step
    /// earlier, up to and including the same request of the next step. Each added request has an entry index of its
    /// own, counted on from the failed one.
    pub program: Program<'a>,
    /// For each operation of `program`, the recorded one that it is or repeats.
    pub(crate) sources: Vec<u32>,
    /// Live bytes with this request, in blocks of 512 bytes, for each consecutive step up to the one that failed.
    pub live_by_step: Vec<u64>,
    /// Peak of the live bytes after the failed request.
    pub peak_after: u64,
    /// Live bytes with the same request one step later.
    pub live_next_step: u64,
    /// Number of requests added after the failed one.
    pub added_requests: usize,
}

/// A request across training steps: the step, the stack, and its ordinal among the requests of that stack in the step.
type RequestKey = (u32, StackId, u32);

/// An operation that made no known block.
const NONE: usize = usize::MAX;

/// Finds the same request in another step. Operations are indexes into the program's.
struct StepRequests {
    key_of_op: Vec<Option<RequestKey>>,
    op_of_key: FxHashMap<RequestKey, usize>,
    /// For a free, the operation that allocated the block; [`NONE`] for an initial block.
    freed_alloc: Vec<usize>,
    /// The same for each index of [`Program::completed`].
    completed_alloc: Vec<usize>,
    /// The slots of the blocks that are live at the end, by the operation that allocated them.
    live: FxHashMap<usize, u32>,
}

impl StepRequests {
    fn from_program(program: &Program<'_>, op_count: usize, step_of: &dyn Fn(usize) -> Option<u32>) -> Self {
        let mut requests = Self {
            key_of_op: vec![None; op_count],
            op_of_key: FxHashMap::default(),
            freed_alloc: vec![NONE; op_count],
            completed_alloc: vec![NONE; program.completed.len()],
            live: FxHashMap::default(),
        };
        let mut alloc_of_slot = vec![NONE; program.slot_count];
        let mut counts: FxHashMap<(u32, StackId), u32> = FxHashMap::default();
        let complete = |completions: ListRange, completed: &mut [usize], alloc_of_slot: &[usize]| {
            for index in completions.range() {
                completed[index] = alloc_of_slot[program.completed[index] as usize];
            }
        };
        for (index, operation) in program.operations.iter().take(op_count).enumerate() {
            match operation.kind {
                OperationKind::Alloc { context, slot, completions, .. } => {
                    complete(completions, &mut requests.completed_alloc, &alloc_of_slot);
                    if let Some(step) = step_of(operation.entry_index as usize) {
                        let count = counts.entry((step, context)).or_default();
                        let key = (step, context, *count);
                        *count += 1;
                        requests.key_of_op[index] = Some(key);
                        requests.op_of_key.insert(key, index);
                    }
                    if let Some(slot) = slot {
                        alloc_of_slot[slot as usize] = index;
                        requests.live.insert(index, slot);
                    }
                }
                OperationKind::Free { slot, .. } => {
                    requests.freed_alloc[index] = alloc_of_slot[slot as usize];
                    requests.live.remove(&alloc_of_slot[slot as usize]);
                }
                OperationKind::Release { completions, .. } => {
                    complete(completions, &mut requests.completed_alloc, &alloc_of_slot);
                }
                OperationKind::Freeable(_) | OperationKind::Snapshot(_) | OperationKind::Workspace { .. } => {}
            }
        }
        requests
    }

    /// The same request as operation `index`, in the step after or before.
    fn in_adjacent_step(&self, index: usize, is_after: bool) -> Option<usize> {
        let (step, stack, ordinal) = (*self.key_of_op.get(index)?)?;
        let step = if is_after { step.checked_add(1) } else { step.checked_sub(1) };
        self.op_of_key.get(&(step?, stack, ordinal)).copied()
    }
}

impl<'a> Program<'a> {
    /// Continues after the request of entry `failed`, given the training step of each entry. `None` if another request
    /// follows, or if the step before has no such request.
    pub fn continue_past(&self, failed: usize, step_of: &dyn Fn(usize) -> Option<u32>) -> Option<Continuation<'a>> {
        let is_failed = |operation: &Operation| operation.entry_index as usize == failed;
        let last = self.operations.iter().rposition(is_failed)?;
        let is_request = |operation: &Operation| matches!(operation.kind, OperationKind::Alloc { .. });
        if self.operations.get(last + 1..)?.iter().any(is_request) {
            return None;
        }
        let step_requests = StepRequests::from_program(self, last + 1, step_of);
        let previous = step_requests.in_adjacent_step(last, false)?;
        let mut program = Self { operations: self.operations.get(..=last)?.to_vec(), ..self.clone() };
        let mut writer = ContinuationWriter {
            step_requests: &step_requests,
            first_op: previous,
            entry_index: to_u32(failed),
            new_slots: FxHashMap::default(),
            freed_allocs: FxHashSet::default(),
            sources: (0..=to_u32(last)).collect(),
            program: &mut program,
        };
        writer.repeat_request(last, previous);
        for index in previous + 1..last {
            writer.repeat_op(index);
        }
        writer.repeat_request(last, last);
        let sources = std::mem::take(&mut writer.sources);
        let added_requests = (writer.entry_index as usize - failed).saturating_sub(1);
        let earlier = |index: &usize| step_requests.in_adjacent_step(*index, false);
        let mut same_request: Vec<usize> = std::iter::successors(Some(last), earlier).collect();
        same_request.reverse();
        let mut entries = same_request.iter().map(|index| program.operations[*index].entry_index as usize).peekable();
        let (mut live_by_step, mut peak_after, mut live_next_step) = (Vec::new(), 0, 0);
        program.for_each_request(&Settings::default(), |entry_index, live_bytes| {
            if entries.next_if_eq(&entry_index).is_some() {
                live_by_step.push(live_bytes);
            }
            if entry_index > failed {
                (peak_after, live_next_step) = (live_bytes.max(peak_after), live_bytes);
            }
        });
        Some(Continuation { program, sources, live_by_step, peak_after, live_next_step, added_requests })
    }
}

/// Repeats operations of the previous step at the end of a program.
struct ContinuationWriter<'r, 'a> {
    step_requests: &'r StepRequests,
    /// The first operation to repeat.
    first_op: usize,
    /// The entry index of the last request so far.
    entry_index: u32,
    /// Slots of the added blocks, by the operation that allocated their original.
    new_slots: FxHashMap<usize, u32>,
    /// Operations of the previous step whose block of this step is freed already.
    freed_allocs: FxHashSet<usize>,
    /// See [`Continuation::sources`].
    sources: Vec<u32>,
    program: &'r mut Program<'a>,
}

impl ContinuationWriter<'_, '_> {
    fn push(&mut self, source: usize, kind: OperationKind) {
        self.program.operations.push(Operation { entry_index: self.entry_index, kind });
        self.sources.push(to_u32(source));
    }

    /// Adds a request with the size and stack of operation `template`. Its block takes the place of the one that
    /// operation `source` allocated.
    fn repeat_request(&mut self, template: usize, source: usize) {
        let OperationKind::Alloc { size, stream, pool, context, completions, .. } =
            self.program.operations[template].kind
        else {
            debug_assert!(false, "the caller passes requests");
            return;
        };
        let completions = self.repeat_completions(completions);
        let slot = to_u32(self.program.slot_count);
        self.program.slot_count += 1;
        self.entry_index = self.entry_index.saturating_add(1);
        self.new_slots.insert(source, slot);
        let slot = Some(slot);
        let kind = OperationKind::Alloc { size, stream, pool, context, slot, completions };
        self.push(source, kind);
    }

    fn repeat_op(&mut self, index: usize) {
        match self.program.operations[index].kind {
            OperationKind::Alloc { slot: Some(_), .. } => self.repeat_request(index, index),
            OperationKind::Free { is_pending, context, .. } => {
                let alloc = self.step_requests.freed_alloc[index];
                if let Some(slot) = self.find_slot(alloc).filter(|_| self.freed_allocs.insert(alloc)) {
                    self.push(index, OperationKind::Free { slot, is_pending, context });
                }
            }
            OperationKind::Release { scope, context, completions } => {
                let completions = self.repeat_completions(completions);
                self.push(index, OperationKind::Release { scope, context, completions });
            }
            // A request that failed leaves no block; the others hold no memory.
            OperationKind::Alloc { .. }
            | OperationKind::Freeable(_)
            | OperationKind::Snapshot(_)
            | OperationKind::Workspace { .. } => {}
        }
    }

    /// The slot of this step's block in place of the one that operation `alloc` allocated.
    fn find_slot(&self, alloc: usize) -> Option<u32> {
        if alloc >= self.first_op {
            return self.new_slots.get(&alloc).copied();
        }
        let now = self.step_requests.in_adjacent_step(alloc, true)?;
        self.step_requests.live.get(&now).copied()
    }

    fn repeat_completions(&mut self, completions: ListRange) -> ListRange {
        let start = self.program.completed.len();
        for index in completions.range() {
            let alloc = self.step_requests.completed_alloc.get(index).copied();
            let freed = alloc.filter(|alloc| self.freed_allocs.contains(alloc));
            self.program.completed.extend(freed.and_then(|alloc| self.find_slot(alloc)));
        }
        ListRange { start: to_u32(start), len: to_u32(self.program.completed.len() - start) }
    }
}
