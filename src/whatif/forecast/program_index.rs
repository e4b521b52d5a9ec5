//! The operations of a program by its requests.

use std::ops::Range;

use crate::base::ids::to_u32;
use crate::replay::ops::{Program, Script, ScriptOpKind};
use crate::snapshot::BlockState;
use crate::study::iterations::{NEVER, RequestId, Requests};

/// Maps the requests of a trace to operations of its program, and back.
#[derive(Debug)]
pub(super) struct ProgramIndex {
    script: Script,
    /// By request: the operation.
    ops: Vec<u32>,
    /// By block of the script: its request, or [`NEVER`].
    requests: Vec<u32>,
    /// Requested bytes of the blocks that are older than the trace and stay.
    pub(super) older_blocks: Vec<u64>,
}

impl ProgramIndex {
    /// `None` if the program lacks a request, for example because the trace contradicts itself.
    pub(super) fn new(program: &Program<'_>, requests: &Requests) -> Option<Self> {
        let script = Script::from_program(program);
        let mut ops: Vec<u32> = Vec::with_capacity(requests.count());
        let mut request_of_block = Vec::with_capacity(script.blocks.len());
        for block in &script.blocks {
            let op = block.allocated_at.filter(|op| {
                let entry_index = program.operations[*op as usize].entry_index as usize;
                ops.len() < requests.count() && requests.entry(ops.len()) == entry_index
            });
            request_of_block.push(op.map_or(NEVER, |_| to_u32(ops.len())));
            ops.extend(op);
        }
        let last = *ops.last()?;
        let initial = script.blocks.iter().zip(&program.initial_blocks);
        let older = initial.filter(|(block, initial)| {
            initial.state != BlockState::ActivePendingFree && block.freed_at.is_none_or(|op| op > last)
        });
        let older_blocks = older.map(|(block, _)| block.bytes).collect();
        let is_complete = ops.len() == requests.count();
        is_complete.then_some(Self { script, ops, requests: request_of_block, older_blocks })
    }

    pub(super) fn op(&self, request: RequestId) -> usize {
        self.ops[request] as usize
    }

    /// The operations after `request` and before the next.
    pub(super) fn ops_after(&self, request: RequestId) -> Range<usize> {
        let start = self.op(request) + 1;
        start..self.ops.get(request + 1).map_or(start, |next| *next as usize)
    }

    /// The request whose block operation `op` frees.
    pub(super) fn freed_by(&self, op: usize) -> Option<RequestId> {
        let ScriptOpKind::Free { block, .. } = self.script.ops[op].kind else { return None };
        Some(self.requests[block as usize]).filter(|request| *request != NEVER).map(|request| request as usize)
    }

    /// The requests whose blocks are freed after `request` and before the next.
    pub(super) fn freed_after(&self, request: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        self.ops_after(request).filter_map(|op| self.freed_by(op))
    }
}
