//! Failed requests: what is known of one when it is seen, and the report that is made of it.

use serde::Serialize;

use super::blockers::blockers;
use super::reason::reason;
use crate::allocator::{is_small_request, most_taken, segment_size, whole_granules};
use crate::facts::{Step, StreamPool, Stretch, Tiling, Totals};
use crate::frames::{FrameList, FrameReport, StackReader};
use crate::held::HeldAt;
use crate::ids::{PoolId, StackId, SymbolId};
use crate::memory::{HeldByLine, Sum, by_line, summed};
use crate::snapshot::{BlockState, Pools, TraceEntry};
use crate::study::DeviceStudy;
use crate::units::{plain, size};
use crate::verdict::{About, Cause, Circumstances, Free, Verdict, largest_first, rule, spare};

/// Lines whose blocks wait for other streams that are listed.
const SHOWN_PENDING: usize = 5;

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

/// What came of replaying a failed request under other settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) undisturbed: Option<Undisturbed>,
    pub(super) remedies: Vec<Remedy>,
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
    pub verdict: Verdict,
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

/// A request: one that failed in a trace, or one that is made for the asking.
#[derive(Debug, Clone)]
pub(super) struct Request {
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
struct Told {
    /// `None` for a private pool that is not recorded.
    pool: Option<PoolId>,
    /// See [`OomReport::is_pool_open`].
    is_open: bool,
    /// See [`OomReport::kept_back_bytes`].
    kept_back: Option<u64>,
    /// See [`Circumstances::is_pending_unknown`].
    is_pending_unknown: bool,
}

/// A request and the memory there was when it failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) request: Request,
    pub(super) circumstances: Circumstances,
    pub(super) totals: Totals,
    told: Told,
    /// Of the device, in use outside this allocator.
    pub(super) outside: u64,
    blockers: Vec<Blocker>,
    pending: Vec<HeldByLine>,
}

impl Failed {
    /// The request that fails at `entry` with `step`; looked at in full if it `is_late` in the trace.
    pub(super) fn recorded(
        device: DeviceStudy<'_, '_>,
        step: &Step<'_>,
        (index, entry): (usize, TraceEntry),
        is_late: bool,
    ) -> Self {
        let request = Request {
            entry: index,
            bytes: entry.size,
            stream: entry.stream,
            pool: entry.pool,
            device_free: entry.addr,
            time_us: entry.time_us,
            stack: entry.stack,
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
    pub(super) fn asked(device: DeviceStudy<'_, '_>, request: Request, tiling: &Tiling) -> Self {
        let told =
            Told { pool: request.pool, is_open: false, kept_back: None, is_pending_unknown: false };
        Self::of(device, request, told, tiling, true)
    }

    fn of(
        device: DeviceStudy<'_, '_>,
        request: Request,
        told: Told,
        tiling: &Tiling,
        is_late: bool,
    ) -> Self {
        let totals = tiling.totals();
        let known = totals.reserved.saturating_add(request.device_free);
        let outside = device.scope().capacity.map_or(0, |all| all.saturating_sub(known));
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

    /// See [`OomReport::is_pool_open`].
    pub(super) fn is_pool_open(&self) -> bool {
        self.told.is_open
    }

    /// The report; of the last failure of a trace, `held` says where the memory was.
    pub(super) fn report(
        self,
        device: DeviceStudy<'_, '_>,
        tried: Tried,
        held: Option<HeldAt>,
    ) -> OomReport {
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let Self { request, circumstances, totals, told, .. } = &self;
        let largest = circumstances.largest.unwrap_or_default().bytes;
        let segment = circumstances.wanted().bytes;
        let lacking =
            segment.saturating_sub(request.device_free).min(request.bytes.saturating_sub(largest));
        let (verdict, verdict_reason) = match &request.served {
            Some(how) => (Verdict::Served, how.clone()),
            None => {
                let verdict = rule(circumstances).verdict;
                (verdict, reason(&self, verdict, device.settings()))
            }
        };
        let is_served = request.served.is_some();
        OomReport {
            event: request.entry as u64,
            requested_bytes: request.bytes,
            segment_bytes: segment,
            stream: request.stream,
            pool_id: request.pool.map(|pool| snapshot.pools.get(pool)),
            kept_back_bytes: told.kept_back,
            is_pool_open: told.is_open,
            device_free_bytes: request.device_free,
            reserved_bytes: totals.reserved,
            allocated_bytes: totals.allocated,
            cached_bytes: totals.reserved - totals.active,
            largest_free_block_bytes: largest,
            time_us: (request.time_us != 0).then_some(request.time_us),
            verdict,
            verdict_reason,
            culprit: stacks.culprit(request.stack),
            operation: stacks.operation(request.stack),
            user_metadata: request
                .user_metadata
                .map(|text| plain(snapshot.text(text)))
                .filter(|text| !text.is_empty()),
            frames: stacks.whole(request.stack),
            shortfall_bytes: if is_served { 0 } else { lacking },
            causes: if is_served { Vec::new() } else { self.causes() },
            undisturbed: tried.undisturbed,
            remedies: tried.remedies,
            held,
            blockers: self.blockers,
            pending: self.pending,
        }
    }

    /// Where memory was that could have served the request, largest first.
    fn causes(&self) -> Vec<Cause> {
        let c = &self.circumstances;
        let pool_note = match self.told.pool {
            Some(Pools::DEFAULT) => {
                "free in private pools (CUDA graphs, MemPool), out of reach for the default pool"
            }
            Some(_) => "free in other pools, out of reach for this private pool",
            None => "free in pools, of which the request's own, a private one, is not recorded",
        };
        let cause = |kind, bytes, note: &str| Cause { kind, bytes, note: note.to_owned() };
        // Why one that is large enough did not serve is the verdict.
        let largest = c.largest.unwrap_or_default().bytes;
        let which =
            if largest >= self.request.bytes { "the largest" } else { "the largest usable one" };
        let own = format!(
            "free in blocks of the request's own pool and stream, {which} {}",
            size(largest)
        );
        largest_first(vec![
            cause(Verdict::Fragmentation, c.own.all.bytes, &own),
            cause(
                Verdict::OtherStream,
                c.other_stream.bytes,
                "free in blocks of other streams, which this stream cannot use",
            ),
            cause(Verdict::PrivatePool, c.other_pool.bytes, pool_note),
            cause(
                Verdict::PendingFree,
                c.pending.all.bytes,
                "freed by the program, waiting for work on another stream",
            ),
            cause(
                Verdict::NonPytorch,
                self.outside,
                "of the device in use outside this allocator: the CUDA context, libraries, other processes",
            ),
        ])
    }
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
    device: DeviceStudy<'_, '_>,
    request: &Request,
    told: Told,
    tiling: &Tiling,
    outside: u64,
) -> Circumstances {
    let Request { bytes, stream, device_free, .. } = *request;
    let is_small = is_small_request(bytes);
    let largest = told.pool.map_or(0, |pool| tiling.largest_free(pool, stream, is_small));
    let homes = tiling.stream_pools();
    let free = |keep: &dyn Fn(&&StreamPool) -> bool| {
        About::exactly(homes.iter().filter(keep).map(|home| home.free).fold(0, u64::saturating_add))
    };
    let class = homes
        .iter()
        .find(|h| (Some(h.pool), h.stream, h.is_small) == (told.pool, stream, is_small));
    let in_class = |of: fn(&StreamPool) -> u64| About::exactly(class.map_or(0, of));
    let pending = homes.iter().map(|home| home.pending).fold(0, u64::saturating_add);
    let exactly = About::exactly;
    Circumstances {
        request: exactly(bytes),
        segment: exactly(segment_size(bytes, device.settings())),
        most: exactly(most_taken(bytes, device.settings())),
        device_free: exactly(device_free),
        largest: Some(exactly(largest)),
        own: Free {
            all: free(&|h| Some(h.pool) == told.pool && h.stream == stream),
            in_place: in_class(|home| home.free),
        },
        other_stream: free(&|h| Some(h.pool) == told.pool && h.stream != stream),
        other_pool: free(&|h| Some(h.pool) != told.pool),
        pending: Free { all: exactly(pending), in_place: in_class(|home| home.pending) },
        outside: spare(exactly(outside), None, device.scope().capacity.map(exactly)),
        kept_back: told.kept_back.map(exactly),
        is_own_mixed: false,
        is_pending_unknown: told.is_pending_unknown,
    }
}
