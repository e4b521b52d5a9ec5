//! A failed or tried request with the memory at that time, collected during a replay.

use super::blockers::{Blocker, blockers};
use crate::allocator::device::GpuModel;
use crate::allocator::verdict::{ApproxBytes, MemoryAtFailure, reclaimable_outside};
use crate::allocator::{is_small_request, max_growth, segment_size, whole_granule_bytes};
use crate::base::ids::PoolId;
use crate::replay::literal::{ContiguousRange, ReplayStep, Tiling, Totals};
use crate::snapshot::{BlockState, Pools, TraceEntry};
use crate::stacks::frames::StackReader;
use crate::study::DeviceStudy;
use crate::study::memory::{BlockSum, HeldBlock, Holder, top_holders};

/// Maximum number of lines with pending blocks.
const SHOWN_PENDING: usize = 5;

/// The pool of a request, as far as the trace shows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolGuess {
    /// `None` for an unrecorded private pool.
    pub(super) pool: Option<PoolId>,
    /// See [`super::OomReport::is_pool_open`].
    pub(super) is_open: bool,
    /// See [`super::OomReport::kept_back_bytes`].
    pub(super) unreleased: Option<u64>,
    /// See [`MemoryAtFailure::is_pending_unknown`].
    is_pending_unknown: bool,
}

/// A request that failed in a trace, or one that is tried, and the memory then.
#[derive(Debug)]
pub(super) struct FailureFacts {
    /// Index in the device's trace; the number of entries if it follows the last one.
    pub(super) entry: usize,
    /// Its entry, as [`Action::Oom`](crate::snapshot::Action::Oom).
    pub(super) request: TraceEntry,
    /// A tried request that succeeds.
    pub(super) is_served: bool,
    pub(super) circumstances: MemoryAtFailure,
    pub(super) totals: Totals,
    pub(super) pool_guess: PoolGuess,
    /// Device memory that is used outside this allocator.
    pub(super) outside: u64,
    pub(super) blockers: Vec<Blocker>,
    pub(super) pending: Vec<Holder>,
}

impl FailureFacts {
    /// The request that fails at `entry`. Only late ones get blockers and pending blocks.
    pub(super) fn recorded(
        device: DeviceStudy<'_, '_>,
        step: &ReplayStep<'_>,
        (entry, request): (usize, TraceEntry),
        is_late: bool,
    ) -> Self {
        let is_recorded = request.pool.is_some();
        let unreleased = Some(step.tiling).filter(|_| is_late && !is_recorded).map(releasable);
        let unreleased = unreleased.filter(|bytes| *bytes > 0);
        let mut homes = step.tiling.stream_pools().iter().filter(|home| home.stream == request.stream);
        let has_private_pool = homes.any(|home| home.pool != Pools::DEFAULT);
        // Unreleased memory suggests a private pool; which one is unknown.
        let pool = unreleased.is_none().then_some(request.pool.unwrap_or(Pools::DEFAULT));
        let is_open = unreleased.is_some() || (!is_recorded && has_private_pool);
        let is_pending_unknown = step.lacks_completions && pool != Some(Pools::DEFAULT);
        let pool_guess = PoolGuess { pool, is_open, unreleased, is_pending_unknown };
        Self::new(device, (entry, request), pool_guess, step.tiling, is_late, false)
    }

    /// A tried `request`, which would be `entry` of the trace, with the memory in `tiling`.
    pub(super) fn tried(
        device: DeviceStudy<'_, '_>,
        (entry, request): (usize, TraceEntry),
        is_served: bool,
        tiling: &Tiling,
    ) -> Self {
        let pool_guess = PoolGuess { pool: request.pool, is_open: false, unreleased: None, is_pending_unknown: false };
        Self::new(device, (entry, request), pool_guess, tiling, true, is_served)
    }

    fn new(
        device: DeviceStudy<'_, '_>,
        (entry, request): (usize, TraceEntry),
        pool_guess: PoolGuess,
        tiling: &Tiling,
        is_late: bool,
        is_served: bool,
    ) -> Self {
        let totals = tiling.totals();
        let known = totals.reserved.saturating_add(request.addr);
        let outside = reported_capacity(device).map_or(0, |all| all.saturating_sub(known));
        let is_shown = is_late && !is_served;
        Self {
            entry,
            request,
            is_served,
            circumstances: circumstances(device, &request, pool_guess, tiling, outside),
            totals,
            pool_guess,
            outside,
            blockers: if is_shown { blockers(tiling, device.stacks()) } else { Vec::new() },
            pending: if is_late { pending(tiling, device.stacks()) } else { Vec::new() },
        }
    }

    /// Missing bytes: of device memory or of contiguous free memory, whichever is less.
    pub(super) fn missing_bytes(&self) -> u64 {
        let (request, c) = (&self.request, &self.circumstances);
        if self.is_served {
            return 0;
        }
        let segment = c.needed_from_device().bytes;
        segment.saturating_sub(request.addr).min(request.size.saturating_sub(c.largest.unwrap_or_default().bytes))
    }

    /// Bytes that the process had reserved or could still reserve.
    pub(super) fn reach(&self) -> u64 {
        self.totals.reserved.saturating_add(self.request.addr)
    }

    /// The part of [`Self::reach`] that no block used.
    pub(super) fn unused(&self) -> u64 {
        self.reach().saturating_sub(self.totals.active)
    }

    /// Whether blocks were pending, as in a graph capture.
    pub(super) fn has_pending(&self) -> bool {
        self.circumstances.pending.all.bytes > 0
    }
}

/// The memory of the device as its driver reports it. A card of 24 GiB reports about 22 to 23.6 GiB, which `--capacity`
/// need not know: nobody uses the rest.
fn reported_capacity(device: DeviceStudy<'_, '_>) -> Option<u64> {
    device.scope().capacity.and_then(GpuModel::smallest_total_bytes).or_else(|| device.capacity())
}

/// The part of the memory in use `outside` the allocator that this process does not need itself.
fn reclaimable(device: DeviceStudy<'_, '_>, outside: u64) -> ApproxBytes {
    if device.is_dry_run() {
        return ApproxBytes::default(); // only the context of the process itself
    }
    reclaimable_outside(ApproxBytes::exact(outside), None, reported_capacity(device).map(ApproxBytes::exact))
}

/// Free memory that the default pool could release to the device.
fn releasable(tiling: &Tiling) -> u64 {
    let default = tiling.contiguous_ranges().filter(|range| !range.is_private);
    default.map(|range| releasable_in(&range)).fold(0, u64::saturating_add)
}

/// Bytes of the free granules of `range`, which expandable segments can release.
fn releasable_in(range: &ContiguousRange) -> u64 {
    let free = range.blocks.iter().filter(|block| block.state == BlockState::Inactive);
    free.map(|block| whole_granule_bytes(block.offset, block.size, range.granule)).fold(0, u64::saturating_add)
}

/// Pending blocks by the line that allocated them.
fn pending(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<Holder> {
    let blocks = tiling.active_blocks().filter(|block| block.state == BlockState::ActivePendingFree);
    let blocks =
        blocks.map(|block| (HeldBlock { stack: block.context, classification: None, is_older: false }, block.size));
    let blocks: Vec<(HeldBlock, u64)> = blocks.collect();
    let all = BlockSum::from_sizes(blocks.iter().map(|(_, size)| *size));
    top_holders(stacks, blocks.into_iter(), all, SHOWN_PENDING).rows
}

fn circumstances(
    device: DeviceStudy<'_, '_>,
    request: &TraceEntry,
    pool_guess: PoolGuess,
    tiling: &Tiling,
    outside: u64,
) -> MemoryAtFailure {
    let TraceEntry { size: bytes, stream, addr: device_free, .. } = *request;
    let is_small = is_small_request(bytes);
    let pool = pool_guess.pool;
    let largest = pool.map_or(0, |pool| tiling.largest_free(pool, stream, is_small));
    let exactly = ApproxBytes::exact;
    let mut memory = MemoryAtFailure {
        request: exactly(bytes),
        segment: exactly(segment_size(bytes, device.settings())),
        segment_in_granules: exactly(max_growth(bytes, device.settings())),
        device_free: exactly(device_free),
        largest: Some(exactly(largest)),
        outside: reclaimable(device, outside),
        unreleased: pool_guess.unreleased.map(exactly),
        is_pending_unknown: pool_guess.is_pending_unknown,
        ..MemoryAtFailure::default()
    };
    for home in tiling.stream_pools() {
        let [free, pending] = [home.free, home.pending].map(exactly);
        let sum = match (Some(home.pool) == pool, home.stream == stream) {
            (true, true) => &mut memory.own.all,
            (true, false) => &mut memory.other_stream,
            (false, _) => &mut memory.other_pool,
        };
        *sum = sum.saturating_add(free);
        memory.pending.all = memory.pending.all.saturating_add(pending);
        if (Some(home.pool), home.stream, home.is_small) == (pool, stream, is_small) {
            (memory.own.in_place, memory.pending.in_place) = (free, pending);
        }
    }
    memory
}
