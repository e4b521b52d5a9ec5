//! Failed requests, and the state at that moment.

use serde::Serialize;

use super::blockers::blockers;
use super::held::HeldAt;
use super::verdict::{self, Circumstances};
use crate::allocator::{is_small_request, most_taken, segment_size, whole_granules};
use crate::conf::Settings;
use crate::facts::{Step, StreamPool, Stretch, Tiling, Totals};
use crate::frames::{FrameList, FrameReport, StackReader};
use crate::ids::PoolId;
use crate::memory::{HeldByLine, by_line};
use crate::memory::{Sum, summed};
use crate::snapshot::{BlockState, Pools, Snapshot, TraceEntry};
use crate::units::{plain, size};

/// Lines whose blocks wait for other streams that are listed.
const SHOWN_PENDING: usize = 5;

/// Where memory was that could have served a failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// In the words of the verdict: `fragmentation`, `other-stream`, `private-pool`, `pending-free`,
    /// `non-pytorch`.
    pub kind: &'static str,
    /// How much there was.
    pub bytes: u64,
    /// What it is, in words.
    pub note: String,
}

/// Live blocks that keep free space from being used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// Free bytes that would be joined or released without them.
    pub bytes_unlocked: u64,
    /// Those of them that could go back to the device.
    pub bytes_released: u64,
    /// How many.
    pub blocks: u64,
    /// Their own bytes.
    pub bytes_held: u64,
    /// The innermost frame of the user's own code in that stack.
    pub culprit: Option<FrameReport>,
    /// What was being done there.
    pub operation: Option<String>,
    /// The stack that allocated them.
    pub frames: FrameList,
}

/// Settings that were replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Options set beside or instead of the recorded ones, as in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// A recorded option that is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<&'static str>,
    /// Whether the failure does not happen.
    pub avoids_oom: bool,
    /// Peak of reserved memory, up to this request.
    pub peak_reserved_bytes: u64,
    /// Calls to the device for memory, up to this request.
    pub device_allocs: u64,
    /// Calls to give it back, up to this request.
    pub device_frees: u64,
}

/// The replay under the recorded settings, to hold remedies against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Undisturbed {
    /// What the program held at the failure and asked for, each block rounded to 512 bytes.
    pub needed_bytes: u64,
    /// The most that the process could reserve.
    pub reach_bytes: u64,
    /// Calls to the device for memory.
    pub device_allocs: u64,
    /// Calls to give it back.
    pub device_frees: u64,
    /// What was reserved before the first entry: it lies as it was recorded in every replay.
    pub reserved_before_bytes: u64,
    /// Whether the request, of which only the rounded size is recorded, may have been for less.
    pub is_rounded_up: bool,
    /// Settings that were replayed and are left out: what comes of them turns on whether a request was
    /// made in a graph capture or in `use_mem_pool`, which is not recorded.
    pub undecided: u64,
    /// Whether live memory and the request alone are more than could be reserved.
    pub no_setting_helps: bool,
}

/// One `oom` entry of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OomReport {
    /// Index in the device's trace.
    pub event: u64,
    /// The rounded request, as recorded.
    pub requested_bytes: u64,
    /// What the allocator asked the device for.
    pub segment_bytes: u64,
    /// The stream's raw handle.
    pub stream: u64,
    /// The pool; before PyTorch 2.12, which does not record it, `None` unless all memory like it of its
    /// stream, other than the default one, is of one private pool.
    pub pool_id: Option<[u64; 2]>,
    /// Bytes that the default pool would have given back for this request, where no pool is recorded: it was
    /// for a private pool, or they were in one that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_back_bytes: Option<u64>,
    /// Whether it may as well have been for a private pool: none is recorded, and one has memory of that
    /// stream too, or something was not given back.
    pub is_pool_open: bool,
    /// Free on the device, as recorded.
    pub device_free_bytes: u64,
    /// Held from the device at that moment.
    pub reserved_bytes: u64,
    /// Held by the program at that moment.
    pub allocated_bytes: u64,
    /// Free blocks in the cache at that moment.
    pub cached_bytes: u64,
    /// The largest free block that this request could have used, had it been large enough.
    pub largest_free_block_bytes: u64,
    /// Microseconds since the epoch; `None` before PyTorch 2.2.
    pub time_us: Option<u64>,
    /// The single thing that would have served the request.
    pub verdict: &'static str,
    /// One sentence with the numbers.
    pub verdict_reason: String,
    /// The innermost frame of the user's own code.
    pub culprit: Option<FrameReport>,
    /// What was being done there.
    pub operation: Option<String>,
    /// What the program said about itself: `user_metadata`, when set.
    pub user_metadata: Option<String>,
    /// The whole stack of the request.
    pub frames: FrameList,
    /// Device memory, or contiguous free memory, that was missing: the lesser of the two.
    pub shortfall_bytes: u64,
    /// Where free memory was, largest first.
    pub causes: Vec<Cause>,
    /// Live blocks that keep free memory apart, for the last failures of a trace.
    pub blockers: Vec<Blocker>,
    /// Who allocated what waits for other streams, most first, for the last failures of a trace; shares are
    /// of all that waits.
    pub pending: Vec<HeldByLine>,
    /// The replay under the recorded settings; `None` where the model does not reproduce the trace.
    #[serde(rename = "as_recorded", skip_serializing_if = "Option::is_none")]
    pub undisturbed: Option<Undisturbed>,
    /// Settings that were replayed instead, those that avoid the failure first; for the last failures of
    /// a trace that the model reproduces.
    pub remedies: Vec<Remedy>,
    /// Where the memory was, for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldAt>,
}

/// Describes the `oom` entry of `step`; with blockers if it `is_late` in the trace.
pub(super) fn report(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    settings: &Settings,
    capacity: Option<u64>,
    step: &Step<'_>,
    (index, event): (usize, TraceEntry),
    is_late: bool,
) -> OomReport {
    let Totals { reserved, allocated, active, .. } = step.tiling.totals();
    let kept_back = Some(step.tiling)
        .filter(|_| is_late && step.entry.is_some() && event.pool.is_none())
        .map(releasable)
        .filter(|bytes| *bytes > 0);
    let device_free = event.addr;
    let segment = asked_of_device(event.size, device_free, settings);
    let has_private =
        |home: &StreamPool| home.pool != Pools::DEFAULT && home.stream == event.stream;
    let is_pool_open = kept_back.is_some()
        || (step.entry.is_some()
            && event.pool.is_none()
            && step.tiling.stream_pools().iter().any(has_private));
    // Of private pools only the recorded one is known.
    let pool = event.pool.unwrap_or(Pools::DEFAULT);
    let pool = kept_back.is_none().then_some(pool);
    let circumstances = circumstances(step, event, pool, segment, capacity);
    let largest = circumstances.largest;
    let (verdict, verdict_reason) = match kept_back {
        Some(bytes) => verdict::kept_back(&circumstances, bytes, settings),
        None if step.lacks_completions && pool != Some(Pools::DEFAULT) => {
            verdict::without_completions(&circumstances, settings)
        }
        None => verdict::verdict(&circumstances, settings),
    };
    OomReport {
        event: index as u64,
        requested_bytes: event.size,
        segment_bytes: segment,
        stream: event.stream,
        pool_id: event.pool.map(|pool| snapshot.pools.get(pool)),
        kept_back_bytes: kept_back,
        is_pool_open,
        device_free_bytes: device_free,
        reserved_bytes: reserved,
        allocated_bytes: allocated,
        cached_bytes: reserved - active,
        largest_free_block_bytes: largest,
        time_us: (event.time_us != 0).then_some(event.time_us),
        verdict,
        verdict_reason,
        culprit: stacks.culprit(event.stack),
        operation: stacks.operation(event.stack),
        user_metadata: event
            .user_metadata
            .map(|text| plain(snapshot.text(text)))
            .filter(|text| !text.is_empty()),
        frames: stacks.whole(event.stack),
        shortfall_bytes: segment
            .saturating_sub(device_free)
            .min(event.size.saturating_sub(largest)),
        causes: causes(&circumstances, pool),
        blockers: if is_late { blockers(step.tiling, stacks) } else { Vec::new() },
        pending: if is_late { pending(step.tiling, stacks) } else { Vec::new() },
        undisturbed: None,
        remedies: Vec::new(),
        held: None,
    }
}

/// What the device was asked for: a segment; whole granules of an expandable one where the device had
/// room for the request alone.
fn asked_of_device(request: u64, device_free: u64, settings: &Settings) -> u64 {
    let (segment, most) = (segment_size(request, settings), most_taken(request, settings));
    if (segment..most).contains(&device_free) { most } else { segment }
}

/// The description of a request that was made for the asking; `event` is as it would have been
/// recorded.
pub(super) fn report_of(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    settings: &Settings,
    capacity: Option<u64>,
    tiling: &Tiling,
    at: (usize, TraceEntry),
) -> OomReport {
    let step = Step { entry: None, tiling, lacks_completions: false };
    report(snapshot, stacks, settings, capacity, &step, at, true)
}

/// What the default pool could give back to the device.
fn releasable(tiling: &Tiling) -> u64 {
    let of = |stretch: &Stretch| {
        let free = stretch.blocks.iter().filter(|block| block.state == BlockState::Inactive);
        free.map(|block| whole_granules(block.offset, block.size, stretch.granule))
            .fold(0, u64::saturating_add)
    };
    let default = tiling.stretches().filter(|stretch| !stretch.is_private);
    default.map(|stretch| of(&stretch)).fold(0, u64::saturating_add)
}

/// By line: the blocks that wait for other streams.
fn pending(tiling: &Tiling, stacks: &StackReader<'_>) -> Vec<HeldByLine> {
    let waits = |state| state == BlockState::ActivePendingFree;
    let blocks = tiling.active().filter(|(.., state, _)| waits(*state));
    let held = summed(blocks.map(|(_, size, _, _, stack)| (stack, size)));
    let all = held.values().fold(Sum::default(), |all, sum| all.and(*sum));
    by_line(stacks, held, all, SHOWN_PENDING).rows
}

fn circumstances(
    step: &Step<'_>,
    event: TraceEntry,
    pool: Option<PoolId>,
    segment: u64,
    capacity: Option<u64>,
) -> Circumstances {
    let is_small = is_small_request(event.size);
    let largest = pool.map_or(0, |pool| step.tiling.largest_free(pool, event.stream, is_small));
    let homes = step.tiling.stream_pools();
    let free = |keep: &dyn Fn(&&StreamPool) -> bool| {
        homes.iter().filter(keep).map(|home| home.free).fold(0u64, u64::saturating_add)
    };
    let serves =
        |h: &StreamPool| (Some(h.pool), h.stream, h.is_small) == (pool, event.stream, is_small);
    let class = homes.iter().find(|home| serves(home));
    let Totals { reserved, active, .. } = step.tiling.totals();
    Circumstances {
        request: event.size,
        segment,
        device_free: event.addr,
        reserved,
        active,
        largest,
        own: free(&|h| Some(h.pool) == pool && h.stream == event.stream),
        own_class: class.map_or(0, |home| home.free),
        other_stream: free(&|h| Some(h.pool) == pool && h.stream != event.stream),
        other_pool: free(&|h| Some(h.pool) != pool),
        pending: homes.iter().map(|home| home.pending).fold(0, u64::saturating_add),
        pending_class: class.map_or(0, |home| home.pending),
        outside: capacity.map(|all| all.saturating_sub(reserved.saturating_add(event.addr))),
    }
}

fn causes(c: &Circumstances, pool: Option<PoolId>) -> Vec<Cause> {
    let pool_note = match pool {
        Some(Pools::DEFAULT) => {
            "free in private pools (CUDA graphs, MemPool), out of reach for the default pool"
        }
        Some(_) => "free in other pools, out of reach for this private pool",
        None => "free in pools, of which the request's own, a private one, is not recorded",
    };
    let cause = |kind, bytes, note: &str| Cause { kind, bytes, note: note.to_owned() };
    // Why one that is large enough did not serve is the verdict.
    let largest = if c.largest >= c.request { "the largest" } else { "the largest usable one" };
    let own = format!(
        "free in blocks of the request's own pool and stream, {largest} {}",
        size(c.largest)
    );
    let mut causes = vec![
        cause("fragmentation", c.own, &own),
        cause(
            "other-stream",
            c.other_stream,
            "free in blocks of other streams, which this stream cannot use",
        ),
        cause("private-pool", c.other_pool, pool_note),
        cause(
            "pending-free",
            c.pending,
            "freed by the program, waiting for work on another stream",
        ),
        cause(
            "non-pytorch",
            c.outside.unwrap_or(0),
            "of the device in use outside this allocator: the CUDA context, libraries, other processes",
        ),
    ];
    causes.retain(|cause| cause.bytes > 0);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}
