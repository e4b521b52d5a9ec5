//! Performs the recorded operations on the model, with a device that answers as the recorded one did, and compares
//! every entry that the model writes with the recording.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashSet;

use super::hypothesis::Hypothesis;
use super::interpretations::{Interpretation, Prelude, interpretations, request_from_entry};
use super::recorded_device::RecordedDevice;
use super::verification::{Divergence, Fault, Verification};
use crate::allocator::conf::Settings;
use crate::allocator::{AllocatorEntry, BlockId, PendingFreeId, Request, is_small_request, round_size};
use crate::base::ids::{FrameId, PoolId, StackId, to_u32};
use crate::base::intern::SeededMap;
use crate::replay::literal::{InitialState, PoolIndex, Reservations};
use crate::replay::ops::{Boundary, TraceOp, TraceOpKind, TraceOps};
use crate::snapshot::{Action, Device, Snapshot, TraceEntry};

/// The entry of an operation that cannot be performed, and why.
type OpFault = (usize, Fault);
type OpResult = Result<(), OpFault>;

#[derive(Clone)]
pub(super) struct Verifier<'a> {
    pub(super) trace: Device<'a>,
    pub(super) ops: TraceOps<'a>,
    /// The result so far.
    pub(super) so_far: Verification,
    device: RecordedDevice<'a>,
    address_ranges: AddressRanges,
    pub(super) live: SeededMap<u64, BlockId>,
    pending: SeededMap<u64, PendingFreeId>,
    freeable: Vec<PoolId>,
    /// The stacks under which CUDA graph trees restore a pool to a checkpoint.
    checkpoint_stacks: FxHashSet<StackId>,
    // Reused by every operation, to keep their capacity.
    finished: Vec<PendingFreeId>,
    wait_order: Vec<PendingFreeId>,
    last_time: u64,
    /// Bytes that garbage collection had released before this operation.
    collected_before: u64,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(trace: Device<'a>, hypothesis: &Hypothesis, reservations: &'a Reservations) -> Self {
        let mut allocator = hypothesis.allocator(without_oom_throw(&hypothesis.settings));
        let initial_state = InitialState::from_trace(trace, &hypothesis.settings, &PoolIndex::from_device(trace));
        let mut address_ranges = AddressRanges::default();
        let (segments, blocks) = initial_state.to_model_state(reservations);
        let mut recorded_device = RecordedDevice::new(hypothesis.capacity, reservations);
        for segment in &segments {
            address_ranges.insert(segment.range.addr, segment.range.size);
            recorded_device.reserved.extend(segment.reservation);
        }
        let adopted = allocator.add_initial_memory(&segments, &blocks);
        allocator.entries.clear();
        let so_far = Verification {
            starts_empty: initial_state.is_empty(),
            reserved_before: allocator.statistics.reserved_bytes.all.current,
            misplaced_blocks: adopted.misplaced,
            recorded: trace.len(),
            allocator,
            ..Verification::default()
        };
        Self {
            trace,
            ops: TraceOps::new(trace, so_far.reserved_before),
            so_far,
            device: recorded_device,
            address_ranges,
            live: adopted.live.into_iter().collect(),
            pending: adopted.pending.into_iter().collect(),
            freeable: Vec::new(),
            checkpoint_stacks: checkpoint_stacks(trace.snapshot()),
            finished: Vec::new(),
            wait_order: Vec::new(),
            last_time: 0,
            collected_before: 0,
        }
    }

    pub(super) fn set_settings(&mut self, settings: &Settings) {
        self.so_far.allocator.settings = without_oom_throw(settings);
    }

    #[inline]
    pub(super) fn perform(&mut self, op: &TraceOp) {
        self.collected_before = self.so_far.allocator.garbage_collected_bytes;
        let entries = &op.entries;
        let result = match &op.kind {
            TraceOpKind::Free { is_pending } => self.replay_free(entries.start, *is_pending),
            TraceOpKind::Alloc { pool, .. } if self.is_plain_alloc(entries) => {
                self.replay_plain_alloc(entries.start, *pool)
            }
            TraceOpKind::Alloc { pool, boundary } => self.replay_alloc(entries.clone(), *pool, *boundary),
            TraceOpKind::Release { pools, is_all_pools, stack } => {
                self.replay_release(entries.clone(), pools, (*is_all_pools, *stack))
            }
            TraceOpKind::Marker => {
                self.write_marker(entries.start);
                Ok(())
            }
        };
        if let Err((index, fault)) = result {
            self.set_divergence(index, None, fault);
            return;
        }
        self.compare(entries.clone());
    }

    fn replay_free(&mut self, index: usize, is_pending: bool) -> OpResult {
        let entry = self.trace.entry(index);
        let id = self.live.remove(&entry.addr).ok_or((index, Fault::UnknownFree))?;
        if let Some(pending_free) = self.so_far.allocator.free(id, is_pending, entry.stack) {
            self.pending.insert(entry.addr, pending_free);
        }
        Ok(())
    }

    /// A request with no entry but its own. It may restore a block of a checkpoint.
    #[inline]
    fn is_plain_alloc(&self, entries: &Range<usize>) -> bool {
        entries.len() == 1 && self.trace.action(entries.start) == Some(Action::Alloc)
    }

    #[inline]
    fn replay_plain_alloc(&mut self, index: usize, pool: PoolId) -> OpResult {
        if !self.checkpoint_stacks.is_empty()
            && let entry = self.trace.entry(index)
            && self.checkpoint_stacks.contains(&entry.stack)
            && let Some(id) = self.so_far.allocator.restore(&request_from_entry(&entry, pool), entry.addr)
        {
            self.live.insert(entry.addr, id);
            return Ok(());
        }
        self.finished.clear();
        self.wait_order.clear();
        self.make_request(index, pool, false)
    }

    fn replay_alloc(&mut self, entries: Range<usize>, pool: PoolId, boundary: Option<Boundary>) -> OpResult {
        let last = entries.end - 1;
        let entry = self.trace.entry(last);
        let prelude = self.read_prelude(entries.start..last, pool)?;
        if entry.action == Action::Oom {
            self.device.free_bytes = entry.addr;
        }
        let pool_and_id = (pool, self.trace.snapshot().pools.get(pool));
        let interpretations =
            interpretations(&mut self.so_far.allocator, &self.freeable, &entry, pool_and_id, boundary, &prelude);
        if let [interpretation] = interpretations.as_slice() {
            return self.apply_interpretation(interpretation, &prelude, last, pool);
        }
        self.so_far.ambiguous_ops += 1;
        // The first interpretation with which the model writes the recorded entries.
        let before = (self.so_far.allocator.clone(), self.device.clone());
        for interpretation in &interpretations {
            let result = self.apply_interpretation(interpretation, &prelude, last, pool);
            let written = &self.so_far.allocator.entries;
            let is_reproduced = written.len() == entries.len()
                && written
                    .iter()
                    .zip(entries.clone())
                    .all(|(entry, index)| is_equal_entry(entry, &self.trace.entry(index)));
            if result.is_err() || is_reproduced {
                return result;
            }
            (self.so_far.allocator, self.device) = before.clone();
        }
        self.apply_interpretation(&interpretations[0], &prelude, last, pool) // the likeliest
    }

    /// Reads the entries of a request before the last, and prepares the device for them.
    fn read_prelude(&mut self, entries: Range<usize>, pool: PoolId) -> Result<Prelude, OpFault> {
        self.device.moves.clear();
        let mut prelude = Prelude { first_entry: entries.start, ..Prelude::default() };
        let mut released_pools = Vec::new();
        let mut has_grown = false;
        for index in entries {
            let entry = self.trace.entry(index);
            has_grown |= entry.action == Action::SegmentAlloc;
            if entry.action == Action::FreeCompleted {
                let pending_free = self.pending.remove(&entry.addr).ok_or((index, Fault::UnknownCompletion))?;
                prelude.completed.push((index, pending_free));
                prelude.completed_before_moves += usize::from(prelude.first_move.is_none());
            } else if entry.action.changes_reserved() {
                prelude.first_move.get_or_insert(index);
                self.expect_move(index, &entry)?;
                if entry.action.is_shrink() {
                    prelude.has_released = true;
                    let released = self.ops.pools.pool_of(&entry);
                    if released != PoolId::default() && released != pool && !released_pools.contains(&released) {
                        released_pools.push(released);
                    }
                }
            }
        }
        if has_grown && pool != PoolId::default() && self.so_far.allocator.settings.expandable_segments {
            // With expandable segments, only the allocator of a custom pool takes whole segments.
            self.so_far.allocator.set_custom_allocator(pool);
        }
        self.expect_release(&released_pools);
        Ok(prelude)
    }

    /// Prepares the release of the memory of `pools`. The age of initial segments is unknown; the order in which they are
    /// released shows it.
    fn expect_release(&mut self, pools: &[PoolId]) {
        if !pools.is_empty() {
            self.freeable.retain(|pool| !pools.contains(pool));
            self.freeable.splice(0..0, pools.iter().copied());
        }
        self.so_far.allocator.prefer_release_order(&self.device.released_segments());
    }

    /// Performs a request under one interpretation.
    fn apply_interpretation(
        &mut self,
        interpretation: &Interpretation,
        prelude: &Prelude,
        last: usize,
        pool: PoolId,
    ) -> OpResult {
        self.finished.clear();
        self.wait_order.clear();
        let mut released = Vec::new();
        for (nth, (index, pending_free)) in prelude.completed.iter().enumerate() {
            if *index < interpretation.first_entry {
                released.push(*pending_free);
            } else if nth < interpretation.polled_count {
                self.finished.push(*pending_free);
            } else {
                self.wait_order.push(*pending_free);
            }
        }
        if prelude.first_move.is_some_and(|index| index < interpretation.first_entry) {
            self.release_cached_blocks(None, &released, StackId::default());
        }
        self.make_request(last, pool, interpretation.is_capturing)
    }

    fn expect_move(&mut self, index: usize, entry: &TraceEntry) -> OpResult {
        self.device.moves.push_back((index, *entry));
        if entry.action.is_growth() {
            if !self.address_ranges.insert(entry.addr, entry.size) {
                return Err((index, Fault::OverlappingSegment));
            }
        } else {
            self.address_ranges.remove(entry.addr, entry.size);
        }
        Ok(())
    }

    #[inline]
    fn make_request(&mut self, index: usize, pool: PoolId, is_capturing: bool) -> OpResult {
        let entry = self.trace.entry(index);
        if entry.size == 0 || entry.size >= MAX_REQUEST_BYTES {
            return Err((index, Fault::ImpossibleSize));
        }
        if pool != PoolId::default() {
            // A pool in use again cannot be released.
            self.freeable.retain(|freeable| *freeable != pool);
        }
        if !self.so_far.starts_empty && entry.action == Action::Alloc {
            self.so_far.allocator.complete_frees(&self.finished, entry.stack);
            self.finished.clear();
            self.so_far.allocator.prefer_block_at(&request_from_entry(&entry, pool), entry.addr);
        }
        let request = Request {
            finished: &self.finished,
            wait_order: &self.wait_order,
            freeable: &self.freeable,
            is_capturing,
            ..request_from_entry(&entry, pool)
        };
        let rounded = round_size(entry.size, &self.so_far.allocator.settings);
        self.device.op = (index, pool, entry.stream, is_small_request(rounded));
        if let Some(id) = self.so_far.allocator.malloc(&request, &mut self.device) {
            self.live.insert(entry.addr, id);
        }
        Ok(())
    }

    fn replay_release(
        &mut self,
        entries: Range<usize>,
        pools: &[PoolId],
        (is_all_pools, context): (bool, StackId),
    ) -> OpResult {
        self.device.moves.clear();
        let mut completed = Vec::new();
        for index in entries {
            let entry = self.trace.entry(index);
            if entry.action == Action::FreeCompleted {
                let pending_free = self.pending.remove(&entry.addr).ok_or((index, Fault::UnknownCompletion))?;
                completed.push(pending_free);
            } else {
                self.expect_move(index, &entry)?;
            }
        }
        self.expect_release(pools);
        if !is_all_pools && pools.is_empty() {
            // Either a request that left no entry polled them, or the release waited for them and had nothing to
            // release.
            self.so_far.allocator.complete_frees(&completed, context);
            completed.clear();
            if self.so_far.allocator.has_pending_other_than(&[])
                || self.so_far.allocator.has_releasable_memory(&self.freeable)
            {
                return Ok(());
            }
        }
        let other_pools: Vec<PoolId> = self.freeable.iter().copied().filter(|pool| !pools.contains(pool)).collect();
        if !is_all_pools
            && (self.so_far.allocator.has_pending_other_than(&completed)
                || self.so_far.allocator.has_releasable_memory(&other_pools))
        {
            // The operation left memory that it could have released: a MemPool was dropped.
            for pool in pools {
                self.release_cached_blocks(Some(*pool), &completed, context);
            }
            return Ok(());
        }
        self.release_cached_blocks(None, &completed, context);
        Ok(())
    }

    fn release_cached_blocks(&mut self, pool: Option<PoolId>, completed: &[PendingFreeId], context: StackId) {
        let (freeable, device) = (&self.freeable, &mut self.device);
        self.so_far.allocator.release_cached_blocks(pool, completed, freeable, context, device);
    }

    fn write_marker(&mut self, index: usize) {
        let entry = self.trace.entry(index);
        // Before PyTorch 2.12 entries have no pool, and none is compared.
        let pool = entry.pool.unwrap_or_default();
        if entry.action == Action::Snapshot {
            self.so_far.allocator.snapshot(pool);
        } else {
            let TraceEntry { action, addr, size, stream, stack: context, .. } = entry;
            self.so_far.allocator.entries.push(AllocatorEntry { action, addr, size, stream, pool, context });
        }
    }

    /// Compares the entries that the model wrote with the recorded `entries`.
    #[inline]
    fn compare(&mut self, entries: Range<usize>) {
        let written = &self.so_far.allocator.entries;
        let mut difference = None;
        let mut matched = 0;
        let mut time = self.last_time;
        for (nth, index) in entries.clone().enumerate() {
            let recorded = self.trace.entry(index);
            self.so_far.time_reversals += usize::from(recorded.time_us < time);
            time = recorded.time_us;
            match written.get(nth) {
                Some(predicted) if is_equal_entry(predicted, &recorded) => matched += 1,
                predicted => {
                    difference = Some((index, predicted.copied()));
                    break;
                }
            }
        }
        self.last_time = time;
        if difference.is_none() && written.len() > entries.len() {
            difference = Some((entries.end, written.get(entries.len()).copied()));
        }
        self.so_far.matched += matched;
        self.so_far.predicted += written.len();
        if let Some((index, predicted)) = difference {
            self.set_divergence(index, predicted, Fault::Decision);
        } else if let Some(why) = self.so_far.allocator.undefined_behaviour {
            self.set_divergence(entries.end.saturating_sub(1), None, Fault::Undefined(why));
        }
    }

    #[cold]
    fn set_divergence(&mut self, index: usize, predicted: Option<AllocatorEntry>, fault: Fault) {
        // Past the end of the trace if the model wrote more than was recorded.
        let recorded = (index < self.trace.len()).then(|| self.trace.entry(index));
        self.so_far.divergence = Some(Divergence {
            entry_index: index,
            predicted,
            recorded,
            fault,
            names_pools: recorded.is_none_or(|entry| entry.pool.is_some()),
            has_collected: self.so_far.allocator.garbage_collected_bytes > self.collected_before,
        });
    }
}

/// Disjoint ranges: the addresses that the recorded device has allocated.
#[derive(Debug, Clone, Default)]
struct AddressRanges(BTreeMap<u64, u64>);

impl AddressRanges {
    /// False if the range is empty, exceeds the address space or overlaps another.
    fn insert(&mut self, addr: u64, size: u64) -> bool {
        // The caller reports either as a divergence.
        let Some(end) = addr.checked_add(size).filter(|end| *end > addr) else { return false };
        if self.0.range(..end).next_back().is_some_and(|(_, other_end)| *other_end > addr) {
            return false;
        }
        self.0.insert(addr, end);
        true
    }

    /// Removes a range, which may span several inserted ones or a part of one.
    fn remove(&mut self, addr: u64, size: u64) {
        let end = addr.saturating_add(size);
        while let Some((&start, &other_end)) = self.0.range(..end).next_back()
            && other_end > addr
        {
            self.0.remove(&start);
            if other_end > end {
                self.0.insert(end, other_end);
            }
            if start < addr {
                self.0.insert(start, addr);
            }
        }
    }
}

/// The stacks of `snapshot` under which CUDA graph trees restore a private pool to a checkpoint.
fn checkpoint_stacks(snapshot: &Snapshot) -> FxHashSet<StackId> {
    const RESTORE_FUNCTION: &str = "apply_checkpoint_execution_state_in_allocator";
    let frames = snapshot.stacks.frame_ids().filter(|id| snapshot.frame_text(*id).1 == RESTORE_FUNCTION);
    let frames: FxHashSet<FrameId> = frames.collect();
    if frames.is_empty() {
        return FxHashSet::default();
    }
    let stacks = (0..to_u32(snapshot.stacks.len())).map(StackId);
    stacks.filter(|stack| snapshot.stacks.frames(*stack).iter().any(|frame| frames.contains(&frame))).collect()
}

/// With `throw_on_cudamalloc_oom`, a request fails without an entry. Every recorded request has one.
fn without_oom_throw(settings: &Settings) -> Settings {
    Settings { throw_on_cudamalloc_oom: false, ..settings.clone() }
}

/// PyTorch refuses larger tensors before it calls the allocator.
const MAX_REQUEST_BYTES: u64 = 1 << 60;

#[inline]
fn is_equal_entry(predicted: &AllocatorEntry, recorded: &TraceEntry) -> bool {
    predicted.action == recorded.action
        && predicted.addr == recorded.addr
        && predicted.size == recorded.size
        && predicted.stream == recorded.stream
        && recorded.pool.is_none_or(|pool| pool == predicted.pool)
}
