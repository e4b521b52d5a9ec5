//! A failed request and the memory there was: what is known of it when it is seen.

use super::blockers::{Blocker, blockers};
use crate::allocator::verdict::{ApproxBytes, FreeMemory, MemoryAtFailure, reclaimable_outside};
use crate::allocator::{is_small_request, max_growth, segment_size, whole_granule_bytes};
use crate::base::ids::{PoolId, StackId, SymbolId};
use crate::replay::literal::{ContiguousRange, ReplayStep, StreamPool, Tiling, Totals};
use crate::snapshot::{BlockState, Pools, TraceEntry};
use crate::stacks::frames::StackReader;
use crate::study::DeviceStudy;
use crate::study::memory::{BlockSum, LiveByLine, sum_by_key, top_lines};

/// Lines whose blocks wait for other streams that are listed.
const SHOWN_PENDING: usize = 5;

/// A request: one that failed in a trace, or one that is made for the asking.
#[derive(Debug, Clone)]
pub(super) struct RequestFacts {
    /// Index in the device's trace; the number of its entries for one that comes after them.
    pub(super) entry: usize,
    /// Rounded.
    pub(super) bytes: u64,
    pub(super) stream: u64,
    /// Before 2.12, which does not record it, `None` unless it can be told.
    pub(super) pool: Option<PoolId>,
    /// Free on the device when nothing more could be given back to it.
    pub(super) device_free: u64,
    /// Microseconds since the epoch; 0 where that is not recorded.
    pub(super) time_us: u64,
    pub(super) stack: StackId,
    pub(super) user_metadata: Option<SymbolId>,
    /// How it would be served, for one that would not fail.
    pub(super) served: Option<String>,
}

/// Which pool a request was made for, as far as can be told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    /// `None` for a private pool that is not recorded.
    pub(super) pool: Option<PoolId>,
    /// See [`super::OomReport::is_pool_open`].
    pub(super) is_open: bool,
    /// See [`super::OomReport::kept_back_bytes`].
    pub(super) kept_back: Option<u64>,
    /// See [`MemoryAtFailure::is_pending_unknown`].
    is_pending_unknown: bool,
}

/// A request and the memory there was when it failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) request: RequestFacts,
    pub(super) circumstances: MemoryAtFailure,
    pub(super) totals: Totals,
    pub(super) told: Told,
    /// Of the device, in use outside this allocator.
    pub(super) outside: u64,
    pub(super) blockers: Vec<Blocker>,
    pub(super) pending: Vec<LiveByLine>,
}

impl Failed {
    /// The request that fails at `entry` with `step`; looked at in full if it `is_late` in the trace.
    pub(super) fn recorded(
        device: DeviceStudy<'_, '_>,
        step: &ReplayStep<'_>,
        (index, entry): (usize, TraceEntry),
        is_late: bool,
    ) -> Self {
        let request = RequestFacts {
            entry: index,
            bytes: entry.size,
            stream: entry.stream,
            pool: entry.pool,
            device_free: entry.addr,
            time_us: entry.time_us,
            stack: entry.extended_stack,
            user_metadata: entry.user_metadata,
            served: None,
        };
        let is_recorded = request.pool.is_some();
        let kept_back = Some(step.tiling).filter(|_| is_late && !is_recorded).map(releasable);
        let kept_back = kept_back.filter(|bytes| *bytes > 0);
        let has_private =
            |home: &StreamPool| home.pool != Pools::DEFAULT && home.stream == request.stream;
        // Of private pools only the recorded one is known.
        let pool = request.pool.unwrap_or(Pools::DEFAULT);
        let pool = kept_back.is_none().then_some(pool);
        let told = Told {
            pool,
            is_open: kept_back.is_some()
                || (!is_recorded && step.tiling.stream_pools().iter().any(has_private)),
            kept_back,
            is_pending_unknown: step.lacks_completions && pool != Some(Pools::DEFAULT),
        };
        Self::of(device, request, told, step.tiling, is_late)
    }

    /// `request` made of the memory in `tiling`.
    pub(super) fn asked(
        device: DeviceStudy<'_, '_>,
        request: RequestFacts,
        tiling: &Tiling,
    ) -> Self {
        let told =
            Told { pool: request.pool, is_open: false, kept_back: None, is_pending_unknown: false };
        Self::of(device, request, told, tiling, true)
    }

    fn of(
        device: DeviceStudy<'_, '_>,
        request: RequestFacts,
        told: Told,
        tiling: &Tiling,
        is_late: bool,
    ) -> Self {
        let totals = tiling.totals();
        let known = totals.reserved.saturating_add(request.device_free);
        let outside = device.capacity().map_or(0, |all| all.saturating_sub(known));
        let is_shown = is_late && request.served.is_none();
        Self {
            circumstances: circumstances(device, &request, told, tiling, outside),
            totals,
            told,
            outside,
            blockers: if is_shown { blockers(tiling, device.stacks()) } else { Vec::new() },
            pending: if is_late { pending(tiling, device.stacks()) } else { Vec::new() },
            request,
        }
    }

    /// Whether blocks were pending: it may have been made in a graph capture.
    pub(super) fn has_pending(&self) -> bool {
        self.circumstances.pending.all.bytes > 0
    }
}

/// What the default pool could give back to the device.
fn releasable(tiling: &Tiling) -> u64 {
    let of = |stretch: &ContiguousRange| {
        let free = stretch.blocks.iter().filter(|block| block.state == BlockState::Inactive);
        free.map(|block| whole_granule_bytes(block.offset, block.size, stretch.granule))
            .fold(0, u64::saturating_add)
    };
    let default = tiling.contiguous_ranges().filter(|stretch| !stretch.is_private);
    default.map(|stretch| of(&stretch)).fold(0, u64::saturating_add)
}

/// By line: the blocks that wait for other streams.
fn pending(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<LiveByLine> {
    let waits = |state| state == BlockState::ActivePendingFree;
    let blocks = tiling.active_blocks().filter(|(.., state, _)| waits(*state));
    let held = sum_by_key(blocks.map(|(_, size, _, _, stack)| (stack, size)));
    let all = held.values().fold(BlockSum::default(), |all, sum| all.plus(*sum));
    top_lines(stacks, held, all, SHOWN_PENDING).rows
}

fn circumstances(
    device: DeviceStudy<'_, '_>,
    request: &RequestFacts,
    told: Told,
    tiling: &Tiling,
    outside: u64,
) -> MemoryAtFailure {
    let RequestFacts { bytes, stream, device_free, .. } = *request;
    let is_small = is_small_request(bytes);
    let largest = told.pool.map_or(0, |pool| tiling.largest_free(pool, stream, is_small));
    let homes = tiling.stream_pools();
    let free = |keep: &dyn Fn(&&StreamPool) -> bool| {
        ApproxBytes::exact(
            homes.iter().filter(keep).map(|home| home.free).fold(0, u64::saturating_add),
        )
    };
    let class = homes
        .iter()
        .find(|h| (Some(h.pool), h.stream, h.is_small) == (told.pool, stream, is_small));
    let in_class = |of: fn(&StreamPool) -> u64| ApproxBytes::exact(class.map_or(0, of));
    let pending = homes.iter().map(|home| home.pending).fold(0, u64::saturating_add);
    let exactly = ApproxBytes::exact;
    MemoryAtFailure {
        request: exactly(bytes),
        segment: exactly(segment_size(bytes, device.settings())),
        segment_in_granules: exactly(max_growth(bytes, device.settings())),
        device_free: exactly(device_free),
        largest: Some(exactly(largest)),
        own: FreeMemory {
            all: free(&|h| Some(h.pool) == told.pool && h.stream == stream),
            in_place: in_class(|home| home.free),
        },
        other_stream: free(&|h| Some(h.pool) == told.pool && h.stream != stream),
        other_pool: free(&|h| Some(h.pool) != told.pool),
        pending: FreeMemory { all: exactly(pending), in_place: in_class(|home| home.pending) },
        outside: reclaimable_outside(exactly(outside), None, device.capacity().map(exactly)),
        unreleased: told.kept_back.map(exactly),
        is_pending_unknown: told.is_pending_unknown,
        ..MemoryAtFailure::default()
    }
}
