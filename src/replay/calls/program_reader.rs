//! Reads a trace as a program: calls with rows become operations on slots.

use std::ops::Range;

use super::call::Call;
use super::program::{ListRange, Operation, OperationKind, Program, ReleaseScope};
use super::reader::Calls;
use crate::allocator::conf::Settings;
use crate::base::ids::{PoolId, StackId, row};
use crate::base::intern::SeededMap;
use crate::replay::facts::{PoolIndex, Reservations, Start};
use crate::snapshot::{Action, BlockState, Device, TraceEntry};

impl<'a> Program<'a> {
    /// Reads the trace of `device`, which was recorded under `settings`.
    pub fn of(device: Device<'a>, settings: &Settings) -> Self {
        let pools = PoolIndex::of(device);
        let start = Start::of(device, settings, &pools);
        let (held, residents) = start.to_adopt(&Reservations::new(device));
        let mut reader = ProgramReader {
            program: Self {
                device,
                held,
                residents,
                operations: Vec::new(),
                completed: Vec::new(),
                pools: Vec::new(),
                slots: 0,
            },
            live: SeededMap::default(),
            pending: SeededMap::default(),
            vacant: Vec::new(),
            freeable: Vec::new(),
        };
        reader.settle();
        let reserved =
            reader.program.held.iter().fold(0u64, |sum, held| sum.saturating_add(held.size));
        let mut calls = Calls::new(device, reserved);
        while let Some(call) = calls.next() {
            reader.read(&call, &calls);
        }
        reader.program
    }
}

struct ProgramReader<'a> {
    program: Program<'a>,
    /// Slots by recorded address.
    live: SeededMap<u64, u32>,
    pending: SeededMap<u64, u32>,
    vacant: Vec<u32>,
    freeable: Vec<PoolId>,
}

impl ProgramReader<'_> {
    /// The blocks of before the recording get their slots.
    fn settle(&mut self) {
        for (index, resident) in self.program.residents.iter().enumerate() {
            let table = match resident.state {
                BlockState::ActivePendingFree => &mut self.pending,
                _ => &mut self.live,
            };
            table.insert(resident.addr, row(index));
        }
        self.program.slots = self.program.residents.len();
    }

    fn event(&self, row: usize) -> TraceEntry {
        self.program.device.entry(row)
    }

    fn read(&mut self, call: &Call, calls: &Calls<'_>) {
        let rows = call.rows();
        let at = row(rows.end - 1);
        match call {
            Call::Free { rows, waits } => self.free(at, rows.start, *waits),
            Call::Malloc { rows, pool, boundary } => {
                let from = boundary.filter(|b| b.is_likely).map_or(rows.start, |b| b.row);
                if from > rows.start {
                    let stack = self.event(rows.start).stack;
                    self.release(at, rows.start..from, &[], (true, stack));
                }
                self.malloc(at, from..rows.end, *pool, calls);
            }
            Call::Release { rows, pools, of_all, stack } => {
                self.release(at, rows.clone(), pools, (*of_all, *stack));
            }
            Call::Note { row } => {
                let event = self.event(*row);
                if event.action == Action::Snapshot {
                    self.push(at, OperationKind::Snapshot(event.pool.unwrap_or_default()));
                }
            }
        }
    }

    fn push(&mut self, at: u32, kind: OperationKind) {
        self.program.operations.push(Operation { at, kind });
    }

    fn free(&mut self, at: u32, row: usize, waits: bool) {
        let event = self.event(row);
        let Some(slot) = self.live.remove(&event.addr) else { return };
        if waits {
            self.pending.insert(event.addr, slot);
        } else {
            self.vacant.push(slot);
        }
        self.push(at, OperationKind::Free { slot, waits, context: event.stack });
    }

    /// The completions among `rows`.
    fn completions(&mut self, rows: Range<usize>) -> ListRange {
        let first = self.program.completed.len();
        for row in rows {
            let event = self.event(row);
            if event.action == Action::FreeCompleted
                && let Some(slot) = self.pending.remove(&event.addr)
            {
                self.program.completed.push(slot);
                self.vacant.push(slot);
            }
        }
        ListRange { first: row(first), count: row(self.program.completed.len() - first) }
    }

    fn malloc(&mut self, at: u32, rows: Range<usize>, pool: PoolId, calls: &Calls<'_>) {
        let last = rows.end - 1;
        let completions = self.completions(rows.start..last);
        for row in rows.start..last {
            let event = self.event(row);
            if event.action.is_shrinking() {
                let of = calls.pools.of(&event);
                if of != PoolId::default() && of != pool {
                    self.add_freeable(at, of);
                }
            }
        }
        let event = self.event(last);
        if event.size == 0 {
            return;
        }
        self.freeable.retain(|freeable| *freeable != pool);
        let slot = (event.action != Action::Oom).then(|| {
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.program.slots += 1;
                row(self.program.slots - 1)
            });
            self.live.insert(event.addr, slot);
            slot
        });
        let TraceEntry { size, stream, stack: context, .. } = event;
        self.push(at, OperationKind::Malloc { size, stream, pool, context, slot, completions });
    }

    fn add_freeable(&mut self, at: u32, pool: PoolId) {
        if !self.freeable.contains(&pool) {
            self.freeable.push(pool);
            self.push(at, OperationKind::Freeable(pool));
        }
    }

    fn release(
        &mut self,
        at: u32,
        rows: Range<usize>,
        pools: &[PoolId],
        (of_all, context): (bool, StackId),
    ) {
        let completions = self.completions(rows);
        for pool in pools {
            self.add_freeable(at, *pool);
        }
        let scope = if of_all {
            ReleaseScope::All
        } else if pools.is_empty() {
            ReleaseScope::Nothing
        } else {
            let first = row(self.program.pools.len());
            self.program.pools.extend(pools);
            ReleaseScope::Pools(ListRange { first, count: row(pools.len()) })
        };
        self.push(at, OperationKind::Release { scope, context, completions });
    }
}
