//! The operations of a program by its requests.

use std::ops::Range;

use crate::replay::ops::{OperationKind, Program};
use crate::snapshot::BlockState;
use crate::study::iterations::{NEVER, RequestId, Requests};

/// Where the requests of a trace are in its program.
#[derive(Debug)]
pub(super) struct ProgramIndex {
    /// By request: the operation.
    ops: Vec<u32>,
    /// By operation: the request whose block it frees, or [`NEVER`].
    freed_by_op: Vec<u32>,
    /// Requested bytes of the blocks that are older than the trace and stay, ascending.
    older_blocks: Vec<u64>,
}

impl ProgramIndex {
    /// `None` if the program lacks a request, as where the trace contradicts itself.
    pub(super) fn new(program: &Program<'_>, requests: &Requests) -> Option<Self> {
        let mut index =
            Self { ops: Vec::with_capacity(requests.count()), freed_by_op: Vec::new(), older_blocks: Vec::new() };
        let mut request_of_slot = vec![NEVER; program.slot_count];
        let initial = &program.initial_blocks;
        let mut is_older: Vec<bool> = initial.iter().map(|b| b.state != BlockState::ActivePendingFree).collect();
        for (op, operation) in (0u32..).zip(&program.operations) {
            index.freed_by_op.push(NEVER);
            match operation.kind {
                OperationKind::Alloc { slot, .. } => {
                    let next = index.ops.len();
                    if next < requests.count() && requests.entry(next) == operation.entry_index as usize {
                        index.ops.push(op);
                        if let Some(slot) = slot {
                            request_of_slot[slot as usize] = u32::try_from(next).unwrap_or(NEVER);
                        }
                    }
                }
                OperationKind::Free { slot, .. } => {
                    let request = std::mem::replace(&mut request_of_slot[slot as usize], NEVER);
                    index.freed_by_op[op as usize] = request;
                    if request == NEVER
                        && let Some(is_older) = is_older.get_mut(slot as usize)
                    {
                        *is_older = false;
                    }
                }
                _ => {}
            }
            if index.ops.len() == requests.count() {
                break;
            }
        }
        let older = initial.iter().zip(is_older).filter(|(_, is_older)| *is_older);
        index.older_blocks = older.map(|(block, _)| block.requested).collect();
        index.older_blocks.sort_unstable();
        (index.ops.len() == requests.count()).then_some(index)
    }

    pub(super) fn op(&self, request: RequestId) -> usize {
        self.ops[request] as usize
    }

    /// The operations after `request` and before the next.
    pub(super) fn ops_after(&self, request: RequestId) -> Range<usize> {
        let end = self.ops.get(request + 1).map_or(self.freed_by_op.len(), |next| *next as usize);
        self.op(request) + 1..end
    }

    /// The request whose block operation `op` frees.
    pub(super) fn freed_by(&self, op: usize) -> Option<RequestId> {
        self.freed_by_op.get(op).filter(|request| **request != NEVER).map(|request| *request as usize)
    }

    /// The requests whose blocks are freed after `request` and before the next.
    pub(super) fn freed_after(&self, request: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        self.ops_after(request).filter_map(|op| self.freed_by(op))
    }

    pub(super) fn older_blocks(&self) -> &[u64] {
        &self.older_blocks
    }
}
