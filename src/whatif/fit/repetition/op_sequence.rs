//! The operations of a recording as tokens, which are equal in recordings of other sizes.

use rustc_hash::FxHashMap;

use super::super::input::SizedRecording;
use super::super::pairing::StackNumber;
use crate::base::ids::{StackId, to_u32};
use crate::replay::ops::OperationKind;

/// The block that an operation frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum FreedBlock {
    /// A block from before the recording, by its slot.
    Initial(u32),
    /// The block of the request that is this operation of the sequence.
    Requested(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    /// The index of the request.
    Alloc(u32),
    Free(FreedBlock),
    Other(u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SequenceOp {
    /// The index of the operation in the recorded program.
    pub(super) operation: usize,
    pub(super) kind: OpKind,
}

/// The operations of a recording without those of the buffers of reductions, which follow from shapes.
#[derive(Debug)]
pub(super) struct OpSequence {
    pub(super) ops: Vec<SequenceOp>,
}

/// An operation without its bytes and addresses.
pub(super) type Token = u64;

/// The token of the free of a block from before the recording.
const INITIAL: u64 = u32::MAX as u64;

impl OpSequence {
    /// `None` if the recording has operations that depend on the timing of the GPU, or failed requests.
    pub(super) fn from_recording(recording: &SizedRecording<'_, '_>) -> Option<Self> {
        let program = recording.program();
        let initial_blocks = program.initial_blocks.len();
        let mut owner: Vec<Option<FreedBlock>> = vec![None; program.slot_count];
        for (slot, owner) in owner.iter_mut().enumerate().take(initial_blocks) {
            *owner = Some(FreedBlock::Initial(to_u32(slot)));
        }
        let (mut ops, mut requests) = (Vec::with_capacity(program.operations.len()), 0);
        for (operation, recorded) in program.operations.iter().enumerate() {
            let kind = match recorded.kind {
                OperationKind::Alloc { slot, completions, .. } => {
                    let (request, slot) = (requests, slot? as usize);
                    requests += 1;
                    if completions.len > 0 {
                        return None;
                    }
                    let is_scratch = recording.requests.get(request)?.is_scratch;
                    owner[slot] = (!is_scratch).then_some(FreedBlock::Requested(to_u32(ops.len())));
                    if is_scratch {
                        continue;
                    }
                    OpKind::Alloc(to_u32(request))
                }
                OperationKind::Free { is_pending: true, .. } => return None,
                OperationKind::Free { slot, .. } => match owner[slot as usize].take() {
                    Some(block) => OpKind::Free(block),
                    None => continue,
                },
                OperationKind::Release { .. } => OpKind::Other(0),
                OperationKind::Freeable(_) => OpKind::Other(1),
                OperationKind::Snapshot(_) => OpKind::Other(2),
                OperationKind::Workspace { .. } => OpKind::Other(3),
            };
            ops.push(SequenceOp { operation, kind });
        }
        sort_frees(&mut ops);
        Some(Self { ops })
    }

    pub(super) fn tokens(
        &self,
        recording: &SizedRecording<'_, '_>,
        numbers: &FxHashMap<StackId, StackNumber>,
    ) -> Vec<Token> {
        let number = |request: u32| {
            let stack = recording.requests[request as usize].stack;
            u64::from(numbers.get(&stack).copied().unwrap_or(0))
        };
        let request_of = |op: u32| match self.ops[op as usize].kind {
            OpKind::Alloc(request) => number(request),
            _ => INITIAL,
        };
        let tokens = self.ops.iter().map(|op| match op.kind {
            OpKind::Alloc(request) => number(request) << 2,
            OpKind::Free(FreedBlock::Requested(op)) => request_of(op) << 2 | 1,
            OpKind::Free(FreedBlock::Initial(_)) => INITIAL << 2 | 1,
            OpKind::Other(kind) => u64::from(kind) << 2 | 2,
        });
        tokens.collect()
    }
}

/// Sorts frees between two other operations by the age of their blocks: programs free lists and sets in any order, and
/// the memory after the last of these frees does not depend on it.
fn sort_frees(ops: &mut [SequenceOp]) {
    let is_free = |op: &SequenceOp| matches!(op.kind, OpKind::Free(_));
    for frees in ops.chunk_by_mut(|a, b| is_free(a) && is_free(b)) {
        frees.sort_by_key(|op| match op.kind {
            OpKind::Free(FreedBlock::Initial(slot)) => (0, slot),
            OpKind::Free(FreedBlock::Requested(op)) => (1, op),
            OpKind::Alloc(_) | OpKind::Other(_) => (0, 0),
        });
    }
}
