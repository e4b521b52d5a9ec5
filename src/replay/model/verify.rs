//! Does the model decide as PyTorch decided? The recorded calls are made to the model, the device
//! answers as the recorded one did, and every line that the model writes is held against the recording.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::address_ranges::AddressRanges;
use super::checkpoints::checkpoint_stacks;
use super::divergence::{Divergence, Fault};
use super::hypothesis::Hypothesis;
use super::interpretations::{Prelude, Interpretation, interpretations, request_from_entry};
use super::recorded_device::RecordedDevice;
use super::verification::Verification;
use crate::allocator::conf::Settings;
use crate::allocator::{
    Behaviour, BlockId, CachingAllocator, AllocatorEntry, Request, PendingFreeId, is_small_request, round_size,
};
use crate::base::ids::{PoolId, StackId};
use crate::base::intern::SeededMap;
use crate::replay::ops::{Boundary, TraceOp, TraceOps};
use crate::replay::literal::{PoolIndex, Reservations, InitialState};
use crate::snapshot::{Action, Device, TraceEntry};

/// Where and why no call can be made of an entry.
type OpFault = (usize, Fault);
type OpResult = Result<(), OpFault>;

#[derive(Clone)]
pub(super) struct Verifier<'a> {
    trace: Device<'a>,
    starts_empty: bool,
    pub(super) reserved_before: u64,
    misplaced_blocks: usize,
    pub(super) allocator: CachingAllocator,
    device: RecordedDevice<'a>,
    address_ranges: AddressRanges,
    pub(super) live: SeededMap<u64, BlockId>,
    pending: SeededMap<u64, PendingFreeId>,
    freeable: Vec<PoolId>,
    /// The stacks under which pools are put back into the state of a checkpoint.
    checkpoint_stacks: FxHashSet<StackId>,
    // Kept from call to call for their room.
    finished: Vec<PendingFreeId>,
    wait_order: Vec<PendingFreeId>,
    predicted: usize,
    matched: usize,
    last_time: u64,
    time_reversals: usize,
    pub(super) divergence: Option<Divergence>,
    /// Bytes that garbage collection had given back before this call.
    collected_before: u64,
    /// Calls that can have come about in several ways.
    ambiguous_ops: usize,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(
        trace: Device<'a>,
        hypothesis: &Hypothesis,
        reservations: &'a Reservations,
    ) -> Self {
        let behaviour = Behaviour::for_release(hypothesis.minor);
        let settings = without_oom_throw(&hypothesis.settings);
        let mut allocator = CachingAllocator::new(behaviour, settings, hypothesis.limit);
        for pool in &hypothesis.no_split {
            allocator.set_no_split(*pool);
        }
        let start = InitialState::from_trace(trace, &hypothesis.settings, &PoolIndex::from_device(trace));
        let starts_empty = start.is_empty();
        let mut address_ranges = AddressRanges::default();
        let (held, residents) = start.to_model_state(reservations);
        let mut recorded_device = RecordedDevice::new(hypothesis.capacity, reservations);
        for segment in &held {
            address_ranges.insert(segment.addr, segment.size);
            segment.reservation.into_iter().for_each(|range| recorded_device.add_reservation(range));
        }
        let adopted = allocator.add_initial_memory(&held, &residents);
        allocator.clear_entries();
        Self {
            trace,
            starts_empty,
            reserved_before: allocator.statistics().reserved_bytes.all.current,
            misplaced_blocks: adopted.misplaced,
            allocator,
            device: recorded_device,
            address_ranges,
            live: adopted.live.into_iter().collect(),
            pending: adopted.pending.into_iter().collect(),
            freeable: Vec::new(),
            checkpoint_stacks: checkpoint_stacks(trace.snapshot()),
            finished: Vec::new(),
            wait_order: Vec::new(),
            predicted: 0,
            matched: 0,
            last_time: 0,
            time_reversals: 0,
            divergence: None,
            collected_before: 0,
            ambiguous_ops: 0,
        }
    }

    /// From here on the allocator goes by `settings`.
    pub(super) fn set_settings(&mut self, settings: &Settings) {
        self.allocator.set_settings(without_oom_throw(settings));
    }

    pub(super) fn finish(self) -> Verification {
        Verification {
            starts_empty: self.starts_empty,
            reserved_before: self.reserved_before,
            misplaced_blocks: self.misplaced_blocks,
            recorded: self.trace.len(),
            predicted: self.predicted,
            matched: self.matched,
            divergence: self.divergence,
            time_reversals: self.time_reversals,
            ambiguous_ops: self.ambiguous_ops,
            allocator: self.allocator,
        }
    }

    #[inline]
    fn entry(&self, row: usize) -> TraceEntry {
        self.trace.entry(row)
    }

    #[inline]
    pub(super) fn step(&mut self, call: &TraceOp, calls: &TraceOps<'_>) {
        self.collected_before = self.allocator.garbage_collected_bytes();
        let done = match call {
            TraceOp::Free { entries: rows, is_pending: waits } => self.replay_free(rows.start, *waits),
            TraceOp::Alloc { entries: rows, pool, .. } if self.is_plain_alloc(rows) => {
                self.replay_plain_alloc(rows.start, *pool)
            }
            TraceOp::Alloc { entries: rows, pool, boundary } => {
                self.replay_alloc(rows.clone(), *pool, *boundary, calls)
            }
            TraceOp::Release { entries: rows, pools, is_all_pools: of_all, stack } => {
                self.replay_release(rows.clone(), pools, (*of_all, *stack))
            }
            TraceOp::Marker { entry_index: row } => {
                self.write_marker(*row);
                Ok(())
            }
        };
        if let Err((row, fault)) = done {
            self.set_divergence(row, None, fault);
            return;
        }
        self.compare(call.entries());
    }

    fn replay_free(&mut self, row: usize, waits: bool) -> OpResult {
        let event = self.entry(row);
        let id = self.live.remove(&event.addr).ok_or((row, Fault::UnknownFree))?;
        if let Some(ticket) = self.allocator.free(id, waits, event.stack) {
            self.pending.insert(event.addr, ticket);
        }
        Ok(())
    }

    #[inline]
    fn is_plain_alloc(&self, rows: &Range<usize>) -> bool {
        rows.len() == 1 && self.trace.action(rows.start) == Some(Action::Alloc)
    }

    /// The usual request: nothing happened but that it was served.
    #[inline]
    fn replay_plain_alloc(&mut self, row: usize, pool: PoolId) -> OpResult {
        if !self.checkpoint_stacks.is_empty()
            && let event = self.entry(row)
            && self.checkpoint_stacks.contains(&event.stack)
            && let Some(id) = self.allocator.restore(&request_from_entry(&event, pool), event.addr)
        {
            self.live.insert(event.addr, id);
            return Ok(());
        }
        self.finished.clear();
        self.wait_order.clear();
        self.make_request(row, pool, false)
    }

    fn replay_alloc(
        &mut self,
        rows: Range<usize>,
        pool: PoolId,
        boundary: Option<Boundary>,
        calls: &TraceOps<'_>,
    ) -> OpResult {
        let last = rows.end - 1;
        let event = self.entry(last);
        let own = self.read_prelude(rows.start..last, pool, calls)?;
        if event.action == Action::Oom {
            self.device.set_free_bytes(event.addr);
        }
        let of = (pool, self.trace.snapshot().pools.get(pool));
        let readings = interpretations(&mut self.allocator, &self.freeable, &event, of, boundary, &own);
        if let [reading] = readings.as_slice() {
            return self.apply_interpretation(reading, &own, last, pool);
        }
        self.ambiguous_ops += 1;
        // The first reading under which the model does what was done.
        let before = (self.allocator.clone(), self.device.clone());
        for reading in &readings {
            let done = self.apply_interpretation(reading, &own, last, pool);
            let written = self.allocator.entries();
            let is_reproduced = written.len() == rows.len()
                && written
                    .iter()
                    .zip(rows.clone())
                    .all(|(entry, row)| is_equal_entry(entry, &self.entry(row)));
            if done.is_err() || is_reproduced {
                return done;
            }
            (self.allocator, self.device) = before.clone();
        }
        match readings.first() {
            Some(reading) => self.apply_interpretation(reading, &own, last, pool),
            None => Ok(()),
        }
    }

    /// Looks up what a request did before it was served, and readies the device for it.
    fn read_prelude(
        &mut self,
        rows: Range<usize>,
        pool: PoolId,
        calls: &TraceOps<'_>,
    ) -> Result<Prelude, OpFault> {
        self.device.clear_moves();
        let mut prelude = Prelude { first_entry: rows.start, ..Prelude::default() };
        let mut gave_back = Vec::new();
        let mut grew = false;
        for row in rows {
            let event = self.entry(row);
            grew |= event.action == Action::SegmentAlloc;
            if event.action == Action::FreeCompleted {
                let ticket =
                    self.pending.remove(&event.addr).ok_or((row, Fault::UnknownCompletion))?;
                prelude.completed.push((row, ticket));
                prelude.completed_before_moves += usize::from(prelude.first_move.is_none());
            } else if event.action.changes_reserved() {
                prelude.first_move.get_or_insert(row);
                self.expect_move(row, &event)?;
                if event.action.is_shrink() {
                    prelude.has_released = true;
                    let of = calls.pools.pool_of(&event);
                    if of != PoolId::default() && of != pool && !gave_back.contains(&of) {
                        gave_back.push(of);
                    }
                }
            }
        }
        if grew && pool != PoolId::default() && self.allocator.settings().expandable_segments {
            // Whole segments where memory is mapped otherwise.
            self.allocator.set_custom_allocator(pool);
        }
        self.make_freeable(&gave_back);
        self.learn_release_order();
        Ok(prelude)
    }

    /// The order in which older segments were given back tells which is oldest.
    fn learn_release_order(&mut self) {
        self.allocator.prefer_release_order(&self.device.released_segments());
    }

    fn make_freeable(&mut self, pools: &[PoolId]) {
        if pools.is_empty() {
            return;
        }
        self.freeable.retain(|pool| !pools.contains(pool));
        self.freeable.splice(0..0, pools.iter().copied());
    }

    /// Makes the calls of one reading.
    fn apply_interpretation(
        &mut self,
        reading: &Interpretation,
        prelude: &Prelude,
        last: usize,
        pool: PoolId,
    ) -> OpResult {
        self.finished.clear();
        self.wait_order.clear();
        let mut released = Vec::new();
        for (at, (row, ticket)) in prelude.completed.iter().enumerate() {
            if *row < reading.first_entry {
                released.push(*ticket);
            } else if at < reading.polled_count {
                self.finished.push(*ticket);
            } else {
                self.wait_order.push(*ticket);
            }
        }
        if prelude.first_move.is_some_and(|row| row < reading.first_entry) {
            let context = StackId::default();
            self.allocator.release_cached_blocks(
                None,
                &released,
                &self.freeable,
                context,
                &mut self.device,
            );
        }
        self.make_request(last, pool, reading.is_capturing)
    }

    fn expect_move(&mut self, row: usize, event: &TraceEntry) -> OpResult {
        self.device.expect_move(row, event);
        if event.action.is_growth() {
            if !self.address_ranges.insert(event.addr, event.size) {
                return Err((row, Fault::OverlappingSegment));
            }
        } else {
            self.address_ranges.remove(event.addr, event.size);
        }
        Ok(())
    }

    #[inline]
    fn make_request(&mut self, row: usize, pool: PoolId, is_capturing: bool) -> OpResult {
        let event = self.entry(row);
        if event.size == 0 || event.size >= MAX_REQUEST_BYTES {
            return Err((row, Fault::ImpossibleSize));
        }
        if pool != PoolId::default() {
            // A pool in use again is not one that can be given back.
            self.freeable.retain(|freeable| *freeable != pool);
        }
        if !self.starts_empty && event.action == Action::Alloc {
            for ticket in self.finished.drain(..) {
                self.allocator.complete_free(ticket, event.stack);
            }
            self.allocator.prefer_block_at(&request_from_entry(&event, pool), event.addr);
        }
        let request = Request {
            finished: &self.finished,
            wait_order: &self.wait_order,
            freeable: &self.freeable,
            is_capturing,
            ..request_from_entry(&event, pool)
        };
        let rounded = round_size(event.size, self.allocator.settings());
        self.device.set_op(row, pool, event.stream, is_small_request(rounded));
        if let Some(id) = self.allocator.malloc(&request, &mut self.device) {
            self.live.insert(event.addr, id);
        }
        Ok(())
    }

    fn replay_release(
        &mut self,
        rows: Range<usize>,
        pools: &[PoolId],
        (of_all, context): (bool, StackId),
    ) -> OpResult {
        self.device.clear_moves();
        let mut order = Vec::new();
        for row in rows {
            let event = self.entry(row);
            if event.action == Action::FreeCompleted {
                let ticket =
                    self.pending.remove(&event.addr).ok_or((row, Fault::UnknownCompletion))?;
                order.push(ticket);
            } else {
                self.expect_move(row, &event)?;
            }
        }
        self.make_freeable(pools);
        self.learn_release_order();
        if !of_all && pools.is_empty() {
            // Noticed by a request that left no line, or waited for with nothing to give back.
            for ticket in order.drain(..) {
                self.allocator.complete_free(ticket, context);
            }
            if self.allocator.has_pending_other_than(&[]) || self.allocator.has_releasable_memory(&self.freeable)
            {
                return Ok(());
            }
        }
        let others: Vec<PoolId> =
            self.freeable.iter().copied().filter(|pool| !pools.contains(pool)).collect();
        if !of_all
            && (self.allocator.has_pending_other_than(&order) || self.allocator.has_releasable_memory(&others))
        {
            // Not everything came back that could have: the work of a MemPool that went.
            for pool in pools {
                let (only, device) = (Some(*pool), &mut self.device);
                self.allocator.release_cached_blocks(only, &order, &self.freeable, context, device);
            }
            return Ok(());
        }
        self.allocator.release_cached_blocks(None, &order, &self.freeable, context, &mut self.device);
        Ok(())
    }

    fn write_marker(&mut self, row: usize) {
        let event = self.entry(row);
        if event.action == Action::Snapshot {
            self.allocator.snapshot(event.pool.unwrap_or_default());
        } else {
            self.allocator.push_entry(AllocatorEntry {
                action: event.action,
                addr: event.addr,
                size: event.size,
                stream: event.stream,
                pool: event.pool.unwrap_or_default(),
                context: event.stack,
            });
        }
    }

    /// Holds what the model wrote against `rows`.
    #[inline]
    fn compare(&mut self, rows: Range<usize>) {
        let written = self.allocator.entries();
        let mut differs = None;
        let mut matched = 0;
        let mut time = self.last_time;
        for (at, row) in rows.clone().enumerate() {
            let event = self.trace.entry(row);
            self.time_reversals += usize::from(event.time_us < time);
            time = event.time_us;
            match written.get(at) {
                Some(entry) if is_equal_entry(entry, &event) => matched += 1,
                entry => {
                    differs = Some((row, entry.copied()));
                    break;
                }
            }
        }
        self.last_time = time;
        if differs.is_none() && written.len() > rows.len() {
            differs = Some((rows.end, written.get(rows.len()).copied()));
        }
        self.matched += matched;
        self.predicted += written.len();
        if let Some((row, entry)) = differs {
            let fault = Fault::Decision(self.allocator.served_by());
            self.set_divergence(row, entry, fault);
        } else if let Some(why) = self.allocator.undefined_behaviour() {
            self.set_divergence(rows.end.saturating_sub(1), None, Fault::Undefined(why));
        }
    }

    #[cold]
    fn set_divergence(&mut self, row: usize, predicted: Option<AllocatorEntry>, fault: Fault) {
        // The model may have written more than was recorded.
        let recorded = (row < self.trace.len()).then(|| self.entry(row));
        self.divergence = Some(Divergence {
            entry_index: row,
            predicted,
            recorded,
            fault,
            names_pools: recorded.is_none_or(|event| event.pool.is_some()),
            has_collected: self.allocator.garbage_collected_bytes() > self.collected_before,
        });
    }
}

/// A request that is refused leaves no line, so none that was recorded was refused.
fn without_oom_throw(settings: &Settings) -> Settings {
    Settings { throw_on_cudamalloc_oom: false, ..settings.clone() }
}

/// A tensor of this many bytes is refused before the allocator is asked.
const MAX_REQUEST_BYTES: u64 = 1 << 60;

#[inline]
fn is_equal_entry(entry: &AllocatorEntry, event: &TraceEntry) -> bool {
    entry.action == event.action
        && entry.addr == event.addr
        && entry.size == event.size
        && entry.stream == event.stream
        && event.pool.is_none_or(|pool| pool == entry.pool)
}
