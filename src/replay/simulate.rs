//! What would have happened otherwise: the recorded calls, made to the model on a simulated device.
//!
//! The program is taken to make the same calls whatever the allocator does: a block that could not be
//! had is not freed later, and a request that failed when it was recorded, and would not have now, is
//! given back at once, since the recorded program went on without it. The work of other streams takes
//! as long as it took: a free that waited is completed where its completion was recorded.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::calls::{Call, Calls, is_shrinking};
use super::hypothesis::{Hypothesis, UNBOUNDED};
use super::recorded::Reservations;
use super::start::{PoolIndex, Start};
use super::verification::Sink;
use super::verify::request_of;
use crate::allocator::{
    Behaviour, BlockId, CachingAllocator, Request, Ticket, round_size, segment_size,
};
use crate::device::Simulated;
use crate::ids::{PoolId, StackId};
use crate::snapshot::{Action, Event, Snapshot};

/// What came of a simulation.
#[derive(Debug)]
pub struct Simulation {
    /// Whether the recording begins with an allocator that holds nothing.
    pub starts_empty: bool,
    /// Entries that the model wrote.
    pub predicted: usize,
    /// Requests that failed: the recorded entry's index, and the rounded bytes.
    pub ooms: Vec<(usize, u64)>,
    /// Requests that failed when they were recorded and were served now.
    pub avoided: Vec<(usize, u64)>,
    /// The model's final state.
    pub allocator: CachingAllocator,
}

/// Makes the calls of `device`'s trace under `hypothesis`; `recorded` says how it was recorded. `keep`
/// sees every entry that the model writes, with the recorded time of the call.
pub fn simulate<'a>(
    snapshot: &'a Snapshot,
    device: usize,
    recorded: &Hypothesis,
    hypothesis: &Hypothesis,
    keep: Option<&'a mut Sink<'a>>,
) -> Simulation {
    let (mut simulator, reserved, starts_empty) =
        Simulator::new(snapshot, device, recorded, hypothesis, keep);
    let mut calls = Calls::new(snapshot, device, reserved);
    while let Some(call) = calls.next() {
        simulator.step(&call, &calls);
    }
    Simulation {
        starts_empty,
        predicted: simulator.predicted,
        ooms: simulator.ooms,
        avoided: simulator.avoided,
        allocator: simulator.allocator,
    }
}

/// Whether every request of `device`'s trace is served under `hypothesis`: the most that is reserved
/// then; else what would have to be within reach for the first that fails, had all before it gone the
/// same way.
pub fn fits(
    snapshot: &Snapshot,
    device: usize,
    recorded: &Hypothesis,
    hypothesis: &Hypothesis,
) -> Result<u64, u64> {
    let (mut simulator, reserved, _) = Simulator::new(snapshot, device, recorded, hypothesis, None);
    let mut calls = Calls::new(snapshot, device, reserved);
    while let Some(call) = calls.next() {
        simulator.step(&call, &calls);
        if let Some((_, request)) = simulator.ooms.first() {
            let held = simulator.allocator.statistics().reserved_bytes.all.current;
            let segment = segment_size(*request, simulator.allocator.settings());
            return Err(held.saturating_add(segment));
        }
    }
    Ok(simulator.allocator.statistics().reserved_bytes.all.peak)
}

struct Simulator<'a> {
    snapshot: &'a Snapshot,
    first_row: usize,
    allocator: CachingAllocator,
    device: Simulated,
    /// The model's blocks by recorded address.
    live: FxHashMap<u64, BlockId>,
    pending: FxHashMap<u64, Ticket>,
    freeable: Vec<PoolId>,
    ooms: Vec<(usize, u64)>,
    avoided: Vec<(usize, u64)>,
    predicted: usize,
    keep: Option<&'a mut Sink<'a>>,
}

impl<'a> Simulator<'a> {
    /// The simulator, what is reserved before the first call, and whether that is nothing.
    fn new(
        snapshot: &'a Snapshot,
        device: usize,
        recorded: &Hypothesis,
        hypothesis: &Hypothesis,
        keep: Option<&'a mut Sink<'a>>,
    ) -> (Self, u64, bool) {
        let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
        let behaviour = Behaviour::of(hypothesis.minor);
        let mut allocator =
            CachingAllocator::new(behaviour, hypothesis.settings.clone(), hypothesis.limit);
        for pool in &hypothesis.no_split {
            allocator.set_no_split(*pool);
        }
        let mut simulated = Simulated::new(crate::ids::row(device), capacity);
        let pools = PoolIndex::of(snapshot, device as u64);
        let start = Start::of(snapshot, device, &recorded.settings, &pools);
        let (held, residents) = start.to_adopt(&Reservations::new(snapshot, device));
        for segment in &held {
            simulated.take_over(segment.addr, segment.size, segment.reservation);
        }
        let adopted = allocator.adopt(&held, &residents);
        let reserved = allocator.statistics().reserved_bytes.all.current;
        let simulator = Simulator {
            snapshot,
            first_row: snapshot.trace(device).start,
            allocator,
            device: simulated,
            live: adopted.live.into_iter().collect(),
            pending: adopted.pending.into_iter().collect(),
            freeable: Vec::new(),
            ooms: Vec::new(),
            avoided: Vec::new(),
            predicted: 0,
            keep,
        };
        (simulator, reserved, start.is_empty())
    }

    fn event(&self, row: usize) -> Option<Event> {
        self.snapshot.events.get(row)
    }

    fn step(&mut self, call: &Call, calls: &Calls<'_>) {
        match call {
            Call::Free { rows, waits } => self.free(rows.start, *waits),
            Call::Malloc { rows, pool, boundary } => {
                let from = boundary.filter(|b| b.is_likely).map_or(rows.start, |b| b.row);
                if from > rows.start {
                    self.release(rows.start..from, &[], true);
                }
                self.malloc(from..rows.end, *pool, calls);
            }
            Call::Release { rows, pools, is_default } => {
                self.release(rows.clone(), pools, *is_default);
            }
            Call::Note { row } => self.note(*row),
        }
        let written = self.allocator.entries();
        self.predicted += written.len();
        if let Some(keep) = &mut self.keep {
            let last = call.rows().end.saturating_sub(1);
            let time = self.snapshot.events.time_us(last).unwrap_or(0);
            for entry in written {
                keep(entry, time);
            }
        }
        self.allocator.clear_entries();
    }

    fn free(&mut self, row: usize, waits: bool) {
        let Some(event) = self.event(row) else { return };
        if let Some(id) = self.live.remove(&event.addr)
            && let Some(ticket) = self.allocator.free(id, waits, event.stack)
        {
            self.pending.insert(event.addr, ticket);
        }
    }

    /// The completions among `rows`, in order.
    fn completed(&mut self, rows: Range<usize>) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for row in rows {
            if let Some(event) = self.event(row)
                && event.action == Action::FreeCompleted
            {
                tickets.extend(self.pending.remove(&event.addr));
            }
        }
        tickets
    }

    fn malloc(&mut self, rows: Range<usize>, pool: PoolId, calls: &Calls<'_>) {
        let last = rows.end - 1;
        let finished = self.completed(rows.start..last);
        for row in rows.start..last {
            if let Some(event) = self.event(row)
                && is_shrinking(event.action)
            {
                let of = calls.pools.of(&event);
                if of != PoolId::default() && of != pool {
                    self.add_freeable(of);
                }
            }
        }
        let Some(event) = self.event(last) else { return };
        if event.size == 0 {
            return;
        }
        self.freeable.retain(|freeable| *freeable != pool);
        let request =
            Request { finished: &finished, freeable: &self.freeable, ..request_of(&event, pool) };
        let index = last - self.first_row;
        let served = self.allocator.malloc(&request, &mut self.device);
        match (served, event.action == Action::Oom) {
            (Some(id), false) => {
                self.live.insert(event.addr, id);
            }
            (Some(id), true) => {
                self.avoided.push((index, event.size));
                self.allocator.free(id, false, event.stack);
            }
            (None, _) => {
                self.live.remove(&event.addr);
                let rounded = round_size(event.size, self.allocator.settings());
                self.ooms.push((index, rounded));
            }
        }
    }

    fn add_freeable(&mut self, pool: PoolId) {
        if !self.freeable.contains(&pool) {
            self.freeable.push(pool);
        }
    }

    fn release(&mut self, rows: Range<usize>, pools: &[PoolId], is_default: bool) {
        let context = self.event(rows.start).map_or(StackId::default(), |event| event.stack);
        let order = self.completed(rows);
        for pool in pools {
            self.add_freeable(*pool);
        }
        let (freeable, device) = (&self.freeable, &mut self.device);
        if is_default {
            self.allocator.release_cached(None, &order, freeable, context, device);
        } else if pools.is_empty() {
            for ticket in order {
                self.allocator.complete(ticket, context);
            }
            // Waited for, if that leaves nothing; noticed by a request that left no line, if not.
            if !self.allocator.has_pending_besides(&[]) && !self.allocator.can_release(freeable) {
                self.allocator.release_cached(None, &[], freeable, context, device);
            }
        } else {
            for pool in pools {
                self.allocator.release_cached(Some(*pool), &order, freeable, context, device);
            }
        }
    }

    fn note(&mut self, row: usize) {
        if let Some(event) = self.event(row)
            && event.action == Action::Snapshot
        {
            self.allocator.snapshot(event.pool.unwrap_or_default());
        }
    }
}
