//! Appends predicted requests and frees to a recorded program.

use super::program_index::ProgramIndex;
use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::ids::to_u32;
use crate::replay::ops::{ListRange, Operation, OperationKind, Program};
use crate::snapshot::BlockState;
use crate::study::iterations::{RequestId, Requests};

/// Predicted operations complete no pending frees.
const NONE: ListRange = ListRange { start: 0, len: 0 };

/// A program with predicted operations at its end. Blocks are named by their requests: up to the failed one those of
/// [`Requests`], then the predicted ones in order.
#[derive(Debug)]
pub(super) struct ContinuationWriter<'r, 'a> {
    requests: &'r Requests,
    index: &'r ProgramIndex,
    recorded: &'r Program<'a>,
    pub(super) program: Program<'a>,
    /// For each operation of `program`, the recorded one that it is or repeats.
    pub(super) sources: Vec<u32>,
    /// The entry index of the last request so far.
    entry_index: u32,
    /// Bytes of the failed request and the predicted ones, which have slots of their own.
    bytes: Vec<u64>,
    is_live: Vec<bool>,
    pub(super) live_bytes: u64,
}

impl<'r, 'a> ContinuationWriter<'r, 'a> {
    /// Appends the failed request, the last of `requests`, which is now served.
    pub(super) fn new(recorded: &'r Program<'a>, index: &'r ProgramIndex, requests: &'r Requests) -> Self {
        let failed = requests.count() - 1;
        let failed_op = index.op(failed);
        let operations = recorded.operations[..=failed_op].to_vec();
        let mut writer = Self {
            requests,
            index,
            recorded,
            entry_index: operations[failed_op].entry_index,
            program: Program { operations, ..recorded.clone() },
            sources: (0..=to_u32(failed_op)).collect(),
            bytes: Vec::new(),
            is_live: (0..failed).map(|request| requests.is_live_at(request, failed)).collect(),
            live_bytes: older_bytes(recorded).saturating_add_signed(requests.live_before(failed)),
        };
        writer.request(failed, requests.bytes(failed));
        writer
    }

    fn push(&mut self, source: usize, kind: OperationKind) {
        self.program.operations.push(Operation { entry_index: self.entry_index, kind });
        self.sources.push(to_u32(source));
    }

    /// The number of recorded and predicted requests.
    pub(super) fn len(&self) -> usize {
        self.is_live.len()
    }

    pub(super) fn is_live(&self, block: RequestId) -> bool {
        self.is_live.get(block).copied().unwrap_or(false)
    }

    fn bytes(&self, block: RequestId) -> u64 {
        let predicted = block.checked_sub(self.requests.count() - 1);
        predicted.map_or_else(|| self.requests.bytes(block), |predicted| self.bytes[predicted])
    }

    /// Appends a request like the recorded `source`, of `bytes`, and returns its number.
    pub(super) fn request(&mut self, source: RequestId, bytes: u64) -> RequestId {
        let op = self.index.op(source);
        let OperationKind::Alloc { stream, pool, context, .. } = self.recorded.operations[op].kind else {
            debug_assert!(false, "a request is an allocation");
            return 0;
        };
        self.entry_index = self.entry_index.saturating_add(1);
        let slot = to_u32(self.program.slot_count);
        self.program.slot_count += 1;
        self.bytes.push(bytes);
        self.is_live.push(true);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.push(op, OperationKind::Alloc { size: bytes, stream, pool, context, slot: Some(slot), completions: NONE });
        self.is_live.len() - 1
    }

    fn slot(&self, block: RequestId) -> Option<u32> {
        if let Some(predicted) = block.checked_sub(self.requests.count() - 1) {
            return Some(to_u32(self.recorded.slot_count + predicted));
        }
        let kind = self.recorded.operations[self.index.op(block)].kind;
        if let OperationKind::Alloc { slot, .. } = kind { slot } else { None }
    }

    /// Frees `block`, if it is live, like the recorded operation `source`. No other stream uses it any more.
    pub(super) fn free(&mut self, block: RequestId, source: usize) {
        let Some(slot) = self.slot(block).filter(|_| self.is_live(block)) else { return };
        let context = match self.recorded.operations[source].kind {
            OperationKind::Free { context, .. } => context,
            _ => crate::base::ids::StackId::default(),
        };
        self.is_live[block] = false;
        self.live_bytes = self.live_bytes.saturating_sub(self.bytes(block));
        self.push(source, OperationKind::Free { slot, is_pending: false, context });
    }

    /// Repeats the recorded operation `source` if it releases memory to the device.
    pub(super) fn release(&mut self, source: usize) {
        if let OperationKind::Release { scope, context, .. } = self.recorded.operations[source].kind {
            self.push(source, OperationKind::Release { scope, context, completions: NONE });
        }
    }
}

/// Bytes that were live before the first operation of `program`, in blocks of 512 bytes.
fn older_bytes(program: &Program<'_>) -> u64 {
    let live = program.initial_blocks.iter().filter(|block| block.state != BlockState::ActivePendingFree);
    live.map(|block| round_size(block.requested, &Settings::default())).fold(0, u64::saturating_add)
}
