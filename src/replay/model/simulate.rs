//! What would have happened otherwise: the recorded calls, made to the model on a simulated device.
//!
//! The program is taken to make the same calls whatever the allocator does: a block that could not be
//! had is not freed later, and a request that failed when it was recorded, and would not have now, is
//! given back at once, since the recorded program went on without it. The work of other streams takes
//! as long as it took: a free that waited is completed where its completion was recorded.

use std::collections::BTreeMap;

use super::hypothesis::Hypothesis;
use super::verification::EntrySink;
use crate::allocator::conf::Settings;
use crate::allocator::device::{
    DeviceMemory as _, ReplayDevice, Reservation, SimulatedDevice, UNBOUNDED,
};
use crate::allocator::{
    Behaviour, BlockId, CachingAllocator, InitialSegment, Request, SMALL_SEGMENT, PendingFreeId, granule_size,
    round_size, segment_size,
};
use crate::base::ids::{PoolId, StackId};
use crate::replay::ops::{ListRange, Operation, OperationKind, Program, ReleaseScope};
use crate::replay::literal::SettingsChange;

/// How often a device is enlarged for one request: mapped memory is rounded up, to granules of some
/// pages.
const MAX_ENLARGEMENTS: usize = 16;

/// What came of a simulation.
#[derive(Debug)]
pub struct Simulation {
    /// Entries that the model wrote.
    pub predicted: usize,
    /// Requests that failed: the recorded entry's index, and the rounded bytes.
    pub ooms: Vec<(usize, u64)>,
    /// Requests that failed when they were recorded and were served now.
    pub avoided: Vec<(usize, u64)>,
    /// The figures right after each request that failed when it was recorded, by its entry's index.
    pub at_failures: BTreeMap<usize, ModelFigures>,
    /// The model's final state.
    pub allocator: CachingAllocator,
}

impl Simulation {
    /// Adds a `request`, as its entry's index and bytes, that is known to fail besides.
    pub fn add_failed_request(&mut self, request: Option<(usize, u64)>) {
        if let Some(request) = request
            && self.ooms.first().is_none_or(|(first, _)| *first > request.0)
        {
            self.ooms.insert(0, request);
        }
    }
}

/// Figures of a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelFigures {
    /// The most that was reserved up to then, in bytes.
    pub peak_reserved: u64,
    /// Calls that took memory from the device.
    pub device_allocs: u64,
    /// Calls that gave memory back.
    pub device_frees: u64,
    /// What the program held then, in bytes.
    pub allocated: u64,
}

/// Makes the calls of `program` under `hypothesis`. `keep` sees every entry that the model writes, with
/// the recorded time of the call.
pub fn simulate(
    program: &Program<'_>,
    hypothesis: &Hypothesis,
    keep: Option<&mut EntrySink<'_>>,
) -> Simulation {
    let memory = simulated_device(program, hypothesis);
    simulate_on(program, hypothesis, memory, |_, _| true, keep)
}

/// The same on `memory`. Before each call `go_on` is shown the index of its last entry in the trace, and
/// says whether to make it and those after it.
pub fn simulate_on<D: ReplayDevice>(
    program: &Program<'_>,
    hypothesis: &Hypothesis,
    memory: D,
    mut go_on: impl FnMut(&mut D, usize) -> bool,
    mut keep: Option<&mut EntrySink<'_>>,
) -> Simulation {
    let mut simulator = Simulator::new(program, hypothesis, memory);
    let mut predicted = 0;
    for operation in &program.operations {
        if !go_on(&mut simulator.device, operation.entry_index as usize) {
            break;
        }
        simulator.perform(operation);
        let written = simulator.allocator.entries();
        predicted += written.len();
        if let Some(keep) = &mut keep {
            let time = program.time_us(operation);
            for entry in written {
                keep(entry, time);
            }
        }
        simulator.allocator.clear_entries();
    }
    let Simulator { ooms, avoided, at_failures, allocator, .. } = simulator;
    Simulation { predicted, ooms, avoided, at_failures, allocator }
}

/// The most that `program` reserves under `hypothesis` if every request is served; stops at the first
/// that is not.
pub fn peak_if_served(program: &Program<'_>, hypothesis: &Hypothesis) -> Option<u64> {
    let mut simulator = Simulator::new(program, hypothesis, simulated_device(program, hypothesis));
    for operation in &program.operations {
        simulator.perform(operation);
        simulator.allocator.clear_entries();
        if !simulator.ooms.is_empty() {
            return None;
        }
    }
    Some(simulator.allocator.statistics().reserved_bytes.all.peak)
}

/// What the device has in the end if it gets more memory each time a request would fail: close to the
/// smallest on which none does.
pub fn sufficient_capacity(program: &Program<'_>, hypothesis: &Hypothesis) -> u64 {
    let mut simulator = Simulator::new(program, hypothesis, simulated_device(program, hypothesis));
    simulator.is_elastic = true;
    for operation in &program.operations {
        simulator.perform(operation);
        simulator.allocator.clear_entries();
    }
    simulator.device.total_bytes()
}

/// What a slot holds in the model.
#[derive(Debug, Clone, Copy)]
enum SlotContent {
    /// Nothing: the request failed, or the block is free.
    Empty,
    Live(BlockId),
    Pending(PendingFreeId),
}

/// The device as `hypothesis` has it.
fn simulated_device(program: &Program<'_>, hypothesis: &Hypothesis) -> SimulatedDevice {
    let capacity = hypothesis.capacity.unwrap_or(UNBOUNDED);
    SimulatedDevice::new(program.device.id(), capacity)
}

struct Simulator<'a, D> {
    program: &'a Program<'a>,
    /// Settings that come into effect yet.
    settings_changes: &'a [SettingsChange],
    allocator: CachingAllocator,
    device: D,
    /// By slot.
    slots: Vec<SlotContent>,
    /// The tickets of the completions of this call.
    completed_frees: Vec<PendingFreeId>,
    freeable: Vec<PoolId>,
    /// See [`Hypothesis::captures`].
    assumes_captures: bool,
    ooms: Vec<(usize, u64)>,
    avoided: Vec<(usize, u64)>,
    at_failures: BTreeMap<usize, ModelFigures>,
    /// Whether the device gets more memory where a request would fail.
    is_elastic: bool,
}

impl<'a, D: ReplayDevice> Simulator<'a, D> {
    fn new(program: &'a Program<'a>, hypothesis: &'a Hypothesis, mut device: D) -> Self {
        let behaviour = Behaviour::for_release(hypothesis.minor);
        let mut allocator =
            CachingAllocator::new(behaviour, hypothesis.settings.clone(), hypothesis.limit);
        for pool in &hypothesis.no_split {
            allocator.set_no_split(*pool);
        }
        give_initial_memory(&mut device, &program.initial_segments, &hypothesis.settings);
        let adopted = allocator.add_initial_memory(&program.initial_segments, &program.initial_blocks);
        let mut blocks = vec![SlotContent::Empty; program.slot_count];
        let live = adopted.live.into_iter().map(|(addr, id)| (addr, SlotContent::Live(id)));
        let pending = adopted.pending.into_iter().map(|(addr, t)| (addr, SlotContent::Pending(t)));
        for (addr, block) in live.chain(pending) {
            if let Some(slot) = program.slot_of_initial_block(addr) {
                blocks[slot as usize] = block;
            }
        }
        Self {
            program,
            settings_changes: &hypothesis.settings_changes,
            allocator,
            device,
            slots: blocks,
            completed_frees: Vec::new(),
            freeable: Vec::new(),
            assumes_captures: hypothesis.assumes_captures,
            ooms: Vec::new(),
            avoided: Vec::new(),
            at_failures: BTreeMap::new(),
            is_elastic: false,
        }
    }

    #[inline]
    fn perform(&mut self, operation: &Operation) {
        while let [next, later @ ..] = self.settings_changes
            && next.first_entry <= operation.entry_index as usize
        {
            self.allocator.set_settings(next.settings.clone());
            self.settings_changes = later;
        }
        match operation.kind {
            OperationKind::Alloc { size, stream, pool, context, slot, completions } => {
                self.collect_completions(completions);
                // What failed has waited for everything: what came back meanwhile was not there for it.
                let waits = slot.is_none();
                if !self.freeable.is_empty() {
                    self.freeable.retain(|freeable| *freeable != pool);
                }
                let request = Request {
                    size,
                    stream,
                    pool,
                    context,
                    finished: if waits { &[] } else { &self.completed_frees },
                    wait_order: if waits { &self.completed_frees } else { &[] },
                    freeable: &self.freeable,
                    is_capturing: self.is_treated_as_capture(pool, stream),
                };
                let mut served = self.allocator.malloc(&request, &mut self.device);
                if served.is_none() && self.is_elastic {
                    let rounded = round_size(size, self.allocator.settings());
                    let segment = segment_size(rounded, self.allocator.settings());
                    for _ in 0..MAX_ENLARGEMENTS {
                        let missing = segment.saturating_sub(self.device.free_bytes());
                        self.device.add_capacity(missing.max(SMALL_SEGMENT));
                        served = self.allocator.malloc(&request, &mut self.device);
                        if served.is_some() {
                            break;
                        }
                    }
                }
                if waits {
                    for ticket in &self.completed_frees {
                        self.allocator.complete_free(*ticket, context);
                    }
                }
                self.record_request(operation.entry_index as usize, served, slot, (size, context));
            }
            OperationKind::Free { slot, is_pending: waits, context } => {
                if let SlotContent::Live(id) =
                    std::mem::replace(&mut self.slots[slot as usize], SlotContent::Empty)
                    && let Some(ticket) = self.allocator.free(id, waits, context)
                {
                    self.slots[slot as usize] = SlotContent::Pending(ticket);
                }
            }
            OperationKind::Release { scope, context, completions } => {
                self.collect_completions(completions);
                self.release(scope, context);
            }
            OperationKind::Freeable(pool) => {
                if !self.freeable.contains(&pool) {
                    self.freeable.push(pool);
                }
            }
            OperationKind::Snapshot(pool) => self.allocator.snapshot(pool),
            OperationKind::Workspace { size, stream, is_needed } => {
                if !self.try_workspace(size, stream) && is_needed {
                    self.ooms.push((operation.entry_index as usize, size));
                }
            }
        }
    }

    /// Asks for memory and gives it back; whether there was any.
    fn try_workspace(&mut self, size: u64, stream: u64) -> bool {
        let request = Request { freeable: &self.freeable, ..Request::in_default_pool(size, stream) };
        let lent = self.allocator.malloc(&request, &mut self.device);
        if let Some(id) = lent {
            self.allocator.free(id, false, StackId::default());
        }
        lent.is_some()
    }

    /// Whether a request waits for nothing and has nothing given back for it by other pools. In a capture
    /// that is so too, but the cache was emptied when it began, which leaves no entry if it was empty.
    fn is_treated_as_capture(&self, pool: PoolId, stream: u64) -> bool {
        pool != PoolId::default()
            && self.allocator.behaviour().private_pools_as_captures
            && !self.program.is_in_capture(pool, stream).unwrap_or(self.assumes_captures)
    }

    /// Gathers the tickets of `completions`, as far as there are any.
    #[inline]
    fn collect_completions(&mut self, completions: ListRange) {
        self.completed_frees.clear();
        for slot in completions.slice(&self.program.completed) {
            if let SlotContent::Pending(ticket) =
                std::mem::replace(&mut self.slots[*slot as usize], SlotContent::Empty)
            {
                self.completed_frees.push(ticket);
            }
        }
    }

    /// What came of the request of entry `index`.
    #[inline]
    fn record_request(
        &mut self,
        index: usize,
        served: Option<BlockId>,
        slot: Option<u32>,
        (size, context): (u64, StackId),
    ) {
        if slot.is_none() {
            let statistics = self.allocator.statistics();
            let figures = ModelFigures {
                peak_reserved: statistics.reserved_bytes.all.peak,
                device_allocs: statistics.num_device_alloc,
                device_frees: statistics.num_device_free,
                allocated: statistics.allocated_bytes.all.current,
            };
            self.at_failures.insert(index, figures);
        }
        match (served, slot) {
            (Some(id), Some(slot)) => self.slots[slot as usize] = SlotContent::Live(id),
            (Some(id), None) => {
                self.avoided.push((index, size));
                self.allocator.free(id, false, context);
            }
            (None, slot) => {
                if let Some(slot) = slot {
                    self.slots[slot as usize] = SlotContent::Empty;
                }
                let rounded = round_size(size, self.allocator.settings());
                self.ooms.push((index, rounded));
            }
        }
    }

    fn release(&mut self, scope: ReleaseScope, context: StackId) {
        let (order, freeable, device) = (&self.completed_frees, &self.freeable, &mut self.device);
        match scope {
            ReleaseScope::All => {
                self.allocator.release_cached_blocks(None, order, freeable, context, device);
            }
            ReleaseScope::Pools(pools) => {
                for pool in pools.slice(&self.program.released_pools) {
                    self.allocator.release_cached_blocks(Some(*pool), order, freeable, context, device);
                }
                for ticket in order {
                    self.allocator.complete_free(*ticket, context);
                }
            }
            ReleaseScope::CompletionsOnly => {
                for ticket in order {
                    self.allocator.complete_free(*ticket, context);
                }
                // Waited for, if that leaves nothing; noticed by a request that left no line, if not.
                if !self.allocator.has_pending_other_than(&[]) && !self.allocator.has_releasable_memory(freeable)
                {
                    self.allocator.release_cached_blocks(None, &[], freeable, context, device);
                }
            }
        }
    }
}

/// Gives `device` the memory that was `held` before the first call.
pub(super) fn give_initial_memory(
    device: &mut (impl ReplayDevice + ?Sized),
    held: &[InitialSegment],
    settings: &Settings,
) {
    for segment in held {
        let granule = granule_size(segment.is_small, settings);
        let within = segment.reservation.map(|(base, size)| Reservation { base, size, granule });
        device.add_initial_memory(segment.addr, segment.size, within);
    }
}
