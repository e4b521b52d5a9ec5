//! A recorded program at another size.

use super::repetition::{FreedBlock, PlacedKind, PlacedOp};
use crate::base::ids::to_u32;
use crate::replay::ops::{ListRange, Operation, OperationKind, Program, ResizedRequest};

/// The program, and where its requests come from.
pub(super) struct SizedProgram<'a> {
    pub(super) program: Program<'a>,
    /// One for each request, in order, without those of blocks from before the recording.
    pub(super) sources: Vec<RequestSource>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RequestSource {
    /// The index of the recorded request.
    pub(super) request: usize,
    /// A buffer that the call of this request takes.
    pub(super) is_temporary: bool,
}

impl<'a> SizedProgram<'a> {
    /// The recorded operations, with other requests.
    pub(super) fn from_requests(program: &Program<'a>, requests: &[ResizedRequest], initial: &[u64]) -> Self {
        let sources = requests.iter().enumerate().flat_map(|(request, resized)| sources_of(request, resized));
        Self { program: program.resized(requests, initial), sources: sources.collect() }
    }

    /// Repeated operations. Each block has a slot of its own.
    pub(super) fn from_ops(
        program: &Program<'a>,
        ops: &[PlacedOp],
        requests: &[ResizedRequest],
        initial: &[u64],
    ) -> Self {
        let mut operations = Vec::with_capacity(ops.len());
        let mut sources = Vec::with_capacity(ops.len());
        let temporary_slots = [0, 1].map(|index| to_u32(program.initial_blocks.len() + index));
        let mut slot_count = program.initial_blocks.len() + temporary_slots.len();
        let mut slots: Vec<u32> = vec![0; ops.len()];
        for (index, op) in ops.iter().enumerate() {
            let Operation { entry_index, mut kind } = program.operations[op.operation];
            let mut push = |kind| operations.push(Operation { entry_index, kind });
            match (op.kind, &mut kind) {
                (
                    PlacedKind::Alloc { request, bytes },
                    OperationKind::Alloc { size, slot, stream, pool, context, .. },
                ) => {
                    let resized = requests[request];
                    slots[index] = to_u32(slot_count);
                    (*size, *slot) = (bytes.or(resized.bytes).unwrap_or(*size), Some(slots[index]));
                    let (stream, pool, context) = (*stream, *pool, *context);
                    slot_count += 1;
                    push(kind);
                    sources.extend(sources_of(request, &resized));
                    let Some(temporaries) = resized.temporaries else { continue };
                    for (size, slot) in temporaries.into_iter().zip(temporary_slots) {
                        let (slot, completions) = (Some(slot), ListRange::default());
                        push(OperationKind::Alloc { size, stream, pool, context, slot, completions });
                    }
                    for slot in temporary_slots.into_iter().rev() {
                        push(OperationKind::Free { slot, is_pending: false, context });
                    }
                }
                (PlacedKind::Free(block), OperationKind::Free { slot, .. }) => {
                    *slot = match block {
                        FreedBlock::Initial(slot) => slot,
                        FreedBlock::Requested(op) => slots[op as usize],
                    };
                    push(kind);
                }
                _ => push(kind),
            }
        }
        Self { program: program.with_operations(operations, slot_count, initial), sources }
    }
}

/// Those of a request and of the buffers that its call takes.
fn sources_of(request: usize, resized: &ResizedRequest) -> impl Iterator<Item = RequestSource> + use<> {
    let own = resized.bytes.map(|_| RequestSource { request, is_temporary: false });
    let buffers = resized.temporaries.into_iter().flatten().map(move |_| RequestSource { request, is_temporary: true });
    own.into_iter().chain(buffers)
}
