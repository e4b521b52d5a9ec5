//! Performs the recorded operations on the model with a simulated device.
//!
//! The program is assumed to perform the same operations whatever the allocator does. A block whose request fails is
//! never freed. A block whose request failed when it was recorded, but is served now, is freed at once, since the
//! recorded program continued without it. The work of other streams is assumed to take as long as recorded: a pending
//! free is completed where its completion was recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::hypothesis::Hypothesis;
use super::verification::EntrySink;
use crate::allocator::conf::Settings;
use crate::allocator::device::{DeviceMemory as _, Placement, ReplayDevice, Reservation, SimulatedDevice, UNBOUNDED};
use crate::allocator::releases::Rule;
use crate::allocator::{
    BlockId, CachingAllocator, InitialSegment, PendingFreeId, Request, RunFigures, SMALL_SEGMENT, ServedBy,
    granule_size, round_size, segment_size,
};
use crate::base::ids::{PoolId, StackId};
use crate::replay::literal::{InitialState, Layout, Reservations, SettingsChange, Tiling, Tracking};
use crate::replay::ops::{ListRange, Operation, OperationKind, Program, ReleaseScope};
use crate::snapshot::{Action, Device};

/// Maximum number of times a device is enlarged for one request. Once may not be enough, since mapped memory is rounded
/// up to granules.
const MAX_ENLARGEMENTS: usize = 16;
/// Headroom is measured to within this part of itself.
const HEADROOM_PARTS: u64 = 256;

#[derive(Debug, Default)]
pub struct Simulation {
    /// Number of entries that the model wrote.
    pub predicted: usize,
    /// Requests that failed: recorded entry index and rounded bytes.
    pub ooms: Vec<(usize, u64)>,
    /// Requests that failed when they were recorded and are served now: recorded entry index and bytes.
    pub avoided: Vec<(usize, u64)>,
    /// The figures right after each request that failed when it was recorded, by entry index.
    pub at_failures: BTreeMap<usize, RunFigures>,
    /// See [`simulate_with_headroom`].
    pub headroom: BTreeMap<usize, u64>,
    pub allocator: CachingAllocator,
}

impl Simulation {
    /// Peaks and numbers of device calls.
    pub fn figures(&self) -> RunFigures {
        self.allocator.statistics.run_figures()
    }
}

/// Performs `program` under `hypothesis`. `sink` receives every entry that the model writes.
pub fn simulate(program: &Program<'_>, hypothesis: &Hypothesis, sink: Option<&mut EntrySink<'_>>) -> Simulation {
    let device = simulated_device(program.device, hypothesis);
    simulate_on(program, hypothesis, device, |_, _| true, sink)
}

/// [`simulate`]. The result has the headroom right after each request of `entries` that is served: the largest further
/// request on the same stream and for the same pool that would be served.
pub fn simulate_with_headroom(program: &Program<'_>, hypothesis: &Hypothesis, entries: &BTreeSet<usize>) -> Simulation {
    let mut simulator = Simulator::new(program, hypothesis, simulated_device(program.device, hypothesis));
    simulator.headroom_probe = Some((entries, largest_request));
    simulator.perform_until(|_| false);
    simulator.simulation
}

/// The largest request like `request` that would be served now, to within 1/256 or 2 MiB.
fn largest_request(simulator: &Simulator<'_, SimulatedDevice>, request: &Request<'_>) -> u64 {
    let statistics = &simulator.simulation.allocator.statistics;
    let cached = statistics.reserved_bytes.all.current.saturating_sub(statistics.allocated_bytes.all.current);
    let free = simulator.device.free_bytes().saturating_add(cached);
    let (mut served, mut failing) = (0, free.saturating_add(1));
    while failing - served > (served / HEADROOM_PARTS).max(SMALL_SEGMENT) {
        let middle = served + (failing - served) / 2;
        let (mut allocator, mut device) = (simulator.simulation.allocator.clone(), simulator.device.clone());
        if allocator.malloc(&Request { size: middle, ..*request }, &mut device).is_some() {
            served = middle;
        } else {
            failing = middle;
        }
    }
    served
}

/// [`simulate`] on `device`. Before each operation, `should_continue` gets the index of its last entry and returns whether
/// to perform it and those after it.
pub fn simulate_on<D: ReplayDevice>(
    program: &Program<'_>,
    hypothesis: &Hypothesis,
    device: D,
    mut should_continue: impl FnMut(&mut D, usize) -> bool,
    mut sink: Option<&mut EntrySink<'_>>,
) -> Simulation {
    let mut simulator = Simulator::new(program, hypothesis, device);
    for operation in &program.operations {
        if !should_continue(&mut simulator.device, operation.entry_index as usize) {
            break;
        }
        simulator.perform(operation);
        simulator.pass_entries(operation, &mut sink);
    }
    simulator.simulation
}

/// The peak of reserved bytes of `program` under `hypothesis`, on a device with this `placement`; `None` if a request fails.
pub fn peak_if_served(program: &Program<'_>, hypothesis: &Hypothesis, placement: Placement) -> Option<u64> {
    let device = simulated_device(program.device, hypothesis).with_placement(placement);
    let mut simulator = Simulator::new(program, hypothesis, device);
    simulator.perform_until(|simulation| !simulation.ooms.is_empty());
    let simulation = simulator.simulation;
    simulation.ooms.is_empty().then(|| simulation.figures().peak_reserved_bytes)
}

/// A capacity that serves every request: that of a device which grows whenever a request would fail. It is close to the
/// minimum.
pub fn sufficient_capacity(program: &Program<'_>, hypothesis: &Hypothesis) -> u64 {
    let mut simulator = Simulator::new(program, hypothesis, simulated_device(program.device, hypothesis));
    simulator.is_elastic = true;
    simulator.perform_until(|_| false);
    simulator.device.total_bytes()
}

#[derive(Debug, Clone, Copy)]
enum SlotContent {
    /// The request failed, or the block is free.
    Empty,
    Live(BlockId),
    Pending(PendingFreeId),
}

fn simulated_device(device: Device<'_>, hypothesis: &Hypothesis) -> SimulatedDevice {
    SimulatedDevice::new(device.id(), hypothesis.capacity.unwrap_or(UNBOUNDED))
}

struct Simulator<'a, D> {
    program: &'a Program<'a>,
    /// Settings that are not in effect yet.
    settings_changes: &'a [SettingsChange],
    /// The result so far.
    simulation: Simulation,
    device: D,
    slots: Vec<SlotContent>,
    /// The frees that this operation completes.
    completed_frees: Vec<PendingFreeId>,
    freeable: Vec<PoolId>,
    /// See [`Hypothesis::captures`].
    assumes_captures: bool,
    /// The device grows whenever a request would fail.
    is_elastic: bool,
    /// After which entries to measure the headroom, and how.
    headroom_probe: Option<HeadroomProbe<'a, D>>,
}

type HeadroomProbe<'a, D> = (&'a BTreeSet<usize>, fn(&Simulator<'a, D>, &Request<'_>) -> u64);

/// Adds capacity to `device` until it serves `request`.
fn enlarge_and_malloc(
    allocator: &mut CachingAllocator,
    request: &Request<'_>,
    device: &mut impl ReplayDevice,
) -> Option<BlockId> {
    let segment = segment_size(round_size(request.size, &allocator.settings), &allocator.settings);
    (0..MAX_ENLARGEMENTS).find_map(|_| {
        let missing = segment.saturating_sub(device.free_bytes());
        device.add_capacity(missing.max(SMALL_SEGMENT));
        allocator.malloc(request, device)
    })
}

impl<'a, D: ReplayDevice> Simulator<'a, D> {
    fn new(program: &'a Program<'a>, hypothesis: &'a Hypothesis, mut device: D) -> Self {
        let mut allocator = hypothesis.allocator(hypothesis.settings.clone());
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
            simulation: Simulation { allocator, ..Simulation::default() },
            device,
            slots: blocks,
            completed_frees: Vec::new(),
            freeable: Vec::new(),
            assumes_captures: hypothesis.assumes_captures,
            is_elastic: false,
            headroom_probe: None,
        }
    }

    /// Performs the operations up to the one with which the simulation `is_over`.
    fn perform_until(&mut self, is_over: impl Fn(&Simulation) -> bool) {
        for operation in &self.program.operations {
            self.perform(operation);
            self.simulation.allocator.entries.clear();
            if is_over(&self.simulation) {
                return;
            }
        }
    }

    /// Passes the entries that the model wrote for `operation` to `sink`, and counts them.
    #[inline]
    fn pass_entries(&mut self, operation: &Operation, sink: &mut Option<&mut EntrySink<'_>>) {
        let written = &self.simulation.allocator.entries;
        self.simulation.predicted += written.len();
        if let Some(sink) = sink {
            let time = self.program.time_us(operation);
            for entry in written {
                sink(entry, time);
            }
        }
        self.simulation.allocator.entries.clear();
    }

    /// Applies the changes of settings up to entry `entry_index`.
    #[inline]
    fn change_settings(&mut self, entry_index: u32) {
        while let [next, remaining @ ..] = self.settings_changes
            && next.first_entry <= entry_index as usize
        {
            self.simulation.allocator.settings.clone_from(&next.settings);
            self.settings_changes = remaining;
        }
    }

    #[inline]
    fn perform(&mut self, operation: &Operation) {
        self.change_settings(operation.entry_index);
        match operation.kind {
            OperationKind::Alloc { size, stream, pool, context, slot, completions } => {
                self.collect_completions(completions);
                // A request that failed has waited for all pending frees. Those completed there came too late for it.
                let has_failed = slot.is_none();
                if !self.freeable.is_empty() {
                    self.freeable.retain(|freeable| *freeable != pool);
                }
                let request = Request {
                    size,
                    stream,
                    pool,
                    context,
                    finished: if has_failed { &[] } else { &self.completed_frees },
                    wait_order: if has_failed { &self.completed_frees } else { &[] },
                    freeable: &self.freeable,
                    is_capturing: self.is_treated_as_capture(pool, stream),
                };
                let mut served = self.simulation.allocator.malloc(&request, &mut self.device);
                if served.is_none() && self.is_elastic {
                    served = enlarge_and_malloc(&mut self.simulation.allocator, &request, &mut self.device);
                }
                if has_failed {
                    self.simulation.allocator.complete_frees(&self.completed_frees, context);
                }
                let entry_index = operation.entry_index as usize;
                if let Some((entries, measure)) = self.headroom_probe
                    && served.is_some()
                    && entries.contains(&entry_index)
                {
                    let like = Request { finished: &[], wait_order: &[], freeable: &[], ..request };
                    let bytes = measure(self, &like);
                    self.simulation.headroom.insert(entry_index, bytes);
                }
                self.record_request(entry_index, served, slot, (size, context));
            }
            OperationKind::Free { slot, is_pending, context } => {
                if let SlotContent::Live(id) = std::mem::replace(&mut self.slots[slot as usize], SlotContent::Empty)
                    && let Some(pending_free) = self.simulation.allocator.free(id, is_pending, context)
                {
                    self.slots[slot as usize] = SlotContent::Pending(pending_free);
                }
            }
            OperationKind::Release { scope, context, completions } => {
                self.collect_completions(completions);
                self.release(scope, context);
            }
            OperationKind::Freeable(pool) if self.freeable.contains(&pool) => {}
            OperationKind::Freeable(pool) => self.freeable.push(pool),
            OperationKind::Snapshot(pool) => self.simulation.allocator.snapshot(pool),
            OperationKind::Workspace { size, stream, is_needed } => {
                let request = Request { freeable: &self.freeable, ..Request::in_default_pool(size, stream) };
                if let Some(id) = self.simulation.allocator.malloc(&request, &mut self.device) {
                    self.simulation.allocator.free(id, false, StackId::default());
                } else if is_needed {
                    self.simulation.ooms.push((operation.entry_index as usize, size));
                }
            }
        }
    }

    /// Whether the request is performed like one in a graph capture: it waits for no pending free, and other pools
    /// release nothing for it. A real capture does not need this, since the cache is emptied when it begins, which
    /// leaves no entry if the cache is empty.
    fn is_treated_as_capture(&self, pool: PoolId, stream: u64) -> bool {
        pool != PoolId::default()
            && !self.simulation.allocator.behaviour.has(Rule::PrivatePoolsRetry)
            && !self.program.is_in_capture(pool, stream).unwrap_or(self.assumes_captures)
    }

    /// Collects the pending frees of `completions`. A slot may have none, if its request failed here.
    #[inline]
    fn collect_completions(&mut self, completions: ListRange) {
        self.completed_frees.clear();
        for slot in completions.slice(&self.program.completed) {
            if let SlotContent::Pending(pending_free) =
                std::mem::replace(&mut self.slots[*slot as usize], SlotContent::Empty)
            {
                self.completed_frees.push(pending_free);
            }
        }
    }

    /// Records the result of the request of entry `index`.
    #[inline]
    fn record_request(
        &mut self,
        index: usize,
        served: Option<BlockId>,
        slot: Option<u32>,
        (size, context): (u64, StackId),
    ) {
        if slot.is_none() {
            self.simulation.at_failures.insert(index, self.simulation.figures());
        }
        match (served, slot) {
            (Some(id), Some(slot)) => self.slots[slot as usize] = SlotContent::Live(id),
            (Some(id), None) => {
                self.simulation.avoided.push((index, size));
                self.simulation.allocator.free(id, false, context);
            }
            (None, _) => {
                let rounded = round_size(size, &self.simulation.allocator.settings);
                self.simulation.ooms.push((index, rounded));
            }
        }
    }

    fn release(&mut self, scope: ReleaseScope, context: StackId) {
        let (completed, freeable, device) = (&self.completed_frees, &self.freeable, &mut self.device);
        match scope {
            ReleaseScope::All => {
                self.simulation.allocator.release_cached_blocks(None, completed, freeable, context, device);
            }
            ReleaseScope::Pools(pools) => {
                for pool in pools.slice(&self.program.released_pools) {
                    self.simulation.allocator.release_cached_blocks(Some(*pool), completed, freeable, context, device);
                }
                self.simulation.allocator.complete_frees(completed, context);
            }
            ReleaseScope::CompletionsOnly => {
                self.simulation.allocator.complete_frees(completed, context);
                // If nothing is left to release, a release waited for these frees. Otherwise a request that left no
                // entry polled them.
                if !self.simulation.allocator.has_pending_other_than(&[])
                    && !self.simulation.allocator.has_releasable_memory(freeable)
                {
                    self.simulation.allocator.release_cached_blocks(None, &[], freeable, context, device);
                }
            }
        }
    }
}

/// Allocates the initial `segments` on `device`.
fn give_initial_memory(device: &mut (impl ReplayDevice + ?Sized), segments: &[InitialSegment], settings: &Settings) {
    for InitialSegment { range, reservation } in segments {
        let granule = granule_size(range.is_small, settings);
        let reservation = reservation.map(|(base, size)| Reservation { base, size, granule });
        device.add_initial_memory(range.addr, range.size, reservation);
    }
}

#[derive(Debug)]
pub struct RequestResult {
    pub rounded_size: u64,
    /// [`ServedBy::Failed`] if the request failed.
    pub service: ServedBy,
    /// Address of the block, and the bytes of the free block that it was split from; `None` if the request failed.
    pub served_from: Option<(u64, u64)>,
    /// Bytes released to the device to make room.
    pub released_bytes: u64,
    /// Free bytes of the device afterwards.
    pub device_free: u64,
    /// All blocks afterwards.
    pub tiling: Tiling,
}

/// Allocates `size` bytes on `stream` in the default pool, starting from the memory of `device` in `layout`, or in the
/// snapshot.
pub fn try_request(
    device: Device<'_>,
    layout: Option<&Layout>,
    hypothesis: &Hypothesis,
    (size, stream): (u64, u64),
) -> RequestResult {
    let settings = &hypothesis.settings;
    let mut allocator = hypothesis.allocator(settings.clone());
    let mut simulated = simulated_device(device, hypothesis);
    let initial_state = layout.map_or_else(|| InitialState::from_snapshot(device), InitialState::from_layout);
    let (segments, blocks) = initial_state.to_model_state(&Reservations::new(device));
    give_initial_memory(&mut simulated, &segments, settings);
    allocator.add_initial_memory(&segments, &blocks);
    let request = Request::in_default_pool(size, stream);
    let free_block_bytes = allocator.free_block_size(&request);
    let service = match allocator.malloc(&request, &mut simulated) {
        Some(_) => allocator.served_by,
        None => ServedBy::Failed,
    };
    let (mut served_from, mut released_bytes, mut grown) = (None, 0u64, 0u64);
    for entry in &allocator.entries {
        match entry.action {
            Action::Alloc => served_from = Some((entry.addr, free_block_bytes.unwrap_or(grown))),
            Action::SegmentFree | Action::SegmentUnmap => {
                released_bytes = released_bytes.saturating_add(entry.size);
            }
            Action::SegmentAlloc | Action::SegmentMap => grown = grown.saturating_add(entry.size),
            _ => {}
        }
    }
    let mut tiling = Tiling::new(settings.clone(), Tracking::Totals);
    InitialState::from_model(&allocator).place_in(&mut tiling);
    RequestResult {
        rounded_size: round_size(size, settings),
        service,
        served_from,
        released_bytes,
        device_free: simulated.free_bytes(),
        tiling,
    }
}
