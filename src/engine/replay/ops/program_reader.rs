//! Reads a trace as a program: addresses become slots.

use std::ops::Range;

use super::program::{ListRange, Operation, OperationKind, Program, ReleaseScope};
use super::trace_ops::{TraceOp, TraceOpKind, TraceOps};
use crate::allocator::conf::Settings;
use crate::base::ids::{PoolId, StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::replay::literal::{InitialState, PoolIndex, Reservations};
use crate::snapshot::{Action, BlockState, Device, TraceEntry};

impl<'a> Program<'a> {
    /// Reads the trace of `device`, which was recorded under `settings`.
    pub fn from_trace(device: Device<'a>, settings: &Settings) -> Self {
        let pools = PoolIndex::from_device(device);
        let initial_state = InitialState::from_trace(device, settings, &pools);
        let (initial_segments, initial_blocks) = initial_state.to_model_state(&Reservations::new(device));
        let mut reader = ProgramReader {
            program: Self {
                device,
                initial_segments,
                initial_blocks,
                operations: Vec::new(),
                completed: Vec::new(),
                released_pools: Vec::new(),
                slot_count: 0,
            },
            live: SeededMap::default(),
            pending: SeededMap::default(),
            free_slots: Vec::new(),
            freeable: Vec::new(),
        };
        reader.assign_initial_slots();
        let segments = reader.program.initial_segments.iter();
        let reserved = segments.fold(0u64, |sum, segment| sum.saturating_add(segment.range.size));
        let mut ops = TraceOps::new(device, reserved);
        while let Some(op) = ops.next() {
            reader.read_op(&op, &ops);
        }
        reader.program
    }
}

struct ProgramReader<'a> {
    program: Program<'a>,
    /// Slots by recorded address.
    live: SeededMap<u64, u32>,
    pending: SeededMap<u64, u32>,
    free_slots: Vec<u32>,
    /// Private pools whose last user is gone.
    freeable: Vec<PoolId>,
}

impl ProgramReader<'_> {
    fn assign_initial_slots(&mut self) {
        for (index, block) in self.program.initial_blocks.iter().enumerate() {
            let slots = match block.state {
                BlockState::ActivePendingFree => &mut self.pending,
                _ => &mut self.live,
            };
            slots.insert(block.addr, to_u32(index));
        }
        self.program.slot_count = self.program.initial_blocks.len();
    }

    fn read_op(&mut self, op: &TraceOp, ops: &TraceOps<'_>) {
        let entries = &op.entries;
        let last = to_u32(entries.end - 1);
        match &op.kind {
            TraceOpKind::Free { is_pending } => self.read_free(last, entries.start, *is_pending),
            TraceOpKind::Alloc { pool, boundary } => {
                let likely = boundary.filter(|boundary| boundary.is_likely);
                let start = likely.map_or(entries.start, |boundary| boundary.first_entry);
                if start > entries.start {
                    let stack = self.program.device.entry(entries.start).stack;
                    self.read_release(last, entries.start..start, &[], (true, stack));
                }
                self.read_alloc(last, start..entries.end, *pool, ops);
            }
            TraceOpKind::Release { pools, is_all_pools, stack } => {
                self.read_release(last, entries.clone(), pools, (*is_all_pools, *stack));
            }
            TraceOpKind::Marker => {
                let entry = self.program.device.entry(entries.start);
                if entry.action == Action::Snapshot {
                    // Entries before PyTorch 2.12 have no pool.
                    self.push(last, OperationKind::Snapshot(entry.pool.unwrap_or_default()));
                }
            }
        }
    }

    fn push(&mut self, entry_index: u32, kind: OperationKind) {
        self.program.operations.push(Operation { entry_index, kind });
    }

    fn read_free(&mut self, last: u32, entry_index: usize, is_pending: bool) {
        let entry = self.program.device.entry(entry_index);
        // The trace may lack entries: the literal replay counts and reports a free of an unknown address.
        let Some(slot) = self.live.remove(&entry.addr) else { return };
        if is_pending {
            self.pending.insert(entry.addr, slot);
        } else {
            self.free_slots.push(slot);
        }
        self.push(last, OperationKind::Free { slot, is_pending, context: entry.stack });
    }

    fn read_completions(&mut self, entries: Range<usize>) -> ListRange {
        let start = self.program.completed.len();
        for index in entries {
            let entry = self.program.device.entry(index);
            if entry.action == Action::FreeCompleted
                && let Some(slot) = self.pending.remove(&entry.addr)
            {
                self.program.completed.push(slot);
                self.free_slots.push(slot);
            }
        }
        ListRange { start: to_u32(start), len: to_u32(self.program.completed.len() - start) }
    }

    fn read_alloc(&mut self, entry_index: u32, entries: Range<usize>, pool: PoolId, ops: &TraceOps<'_>) {
        let last = entries.end - 1;
        let completions = self.read_completions(entries.start..last);
        for index in entries.start..last {
            let entry = self.program.device.entry(index);
            if entry.action.is_shrink() {
                let released = ops.pools.pool_of(&entry);
                if released != PoolId::default() && released != pool {
                    self.add_freeable(entry_index, released);
                }
            }
        }
        let entry = self.program.device.entry(last);
        // PyTorch's allocator never sees a request of 0 bytes; the verification reports it.
        if entry.size == 0 {
            return;
        }
        self.freeable.retain(|freeable| *freeable != pool);
        let slot = (entry.action != Action::Oom).then(|| {
            let slot = self.free_slots.pop().unwrap_or_else(|| {
                self.program.slot_count += 1;
                to_u32(self.program.slot_count - 1)
            });
            self.live.insert(entry.addr, slot);
            slot
        });
        let TraceEntry { size, stream, stack: context, .. } = entry;
        self.push(entry_index, OperationKind::Alloc { size, stream, pool, context, slot, completions });
    }

    fn add_freeable(&mut self, entry_index: u32, pool: PoolId) {
        if !self.freeable.contains(&pool) {
            self.freeable.push(pool);
            self.push(entry_index, OperationKind::Freeable(pool));
        }
    }

    fn read_release(
        &mut self,
        last: u32,
        entries: Range<usize>,
        pools: &[PoolId],
        (is_all_pools, context): (bool, StackId),
    ) {
        let completions = self.read_completions(entries);
        for pool in pools {
            self.add_freeable(last, *pool);
        }
        let scope = if is_all_pools {
            ReleaseScope::All
        } else if pools.is_empty() {
            ReleaseScope::CompletionsOnly
        } else {
            let start = to_u32(self.program.released_pools.len());
            self.program.released_pools.extend(pools);
            ReleaseScope::Pools(ListRange { start, len: to_u32(pools.len()) })
        };
        self.push(last, OperationKind::Release { scope, context, completions });
    }
}
