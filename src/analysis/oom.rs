//! Failed requests, and the state at that moment.

use serde::Serialize;

use super::frames::{FrameList, FrameReport, StackReader};
use crate::allocator::{is_small_request, segment_size};
use crate::conf::Settings;
use crate::replay::{Step, Totals};
use crate::snapshot::{Event, Pools, Snapshot};
use crate::units::{plain, size};

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
    /// How many.
    pub blocks: u64,
    /// Their own bytes.
    pub bytes_held: u64,
    /// The stack that allocated them.
    pub frames: FrameList,
}

/// Settings that were replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// As in `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings: String,
    /// Whether the failure does not happen.
    pub avoids_oom: bool,
    /// Peak of reserved memory.
    pub peak_reserved_bytes: u64,
    /// Calls to the device for memory.
    pub device_allocs: u64,
    /// Calls to give it back.
    pub device_frees: u64,
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
    /// The pool; `None` before PyTorch 2.12, which does not record it.
    pub pool_id: Option<[u64; 2]>,
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
    /// The single thing that would have served the request; `unknown` until it is replayed.
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
    /// Not determined yet.
    pub blockers: Vec<Blocker>,
    /// Not determined yet.
    pub remedies: Vec<Remedy>,
}

/// Describes the `oom` entry of `step`.
pub(super) fn report(
    snapshot: &Snapshot,
    stacks: &StackReader<'_>,
    settings: &Settings,
    capacity: Option<u64>,
    step: &Step<'_>,
    (index, event): (usize, Event),
) -> OomReport {
    let Totals { reserved, allocated, active, .. } = step.tiling.totals();
    let pool = event.pool.unwrap_or(Pools::DEFAULT);
    let segment = segment_size(event.size, settings);
    let is_small = is_small_request(event.size);
    let largest = step.tiling.largest_free(pool, event.stream, is_small).unwrap_or(0);
    let device_free = event.addr;
    OomReport {
        event: index as u64,
        requested_bytes: event.size,
        segment_bytes: segment,
        stream: event.stream,
        pool_id: event.pool.map(|pool| snapshot.pools.get(pool)),
        device_free_bytes: device_free,
        reserved_bytes: reserved,
        allocated_bytes: allocated,
        cached_bytes: reserved - active,
        largest_free_block_bytes: largest,
        time_us: (event.time_us != 0).then_some(event.time_us),
        verdict: "unknown",
        verdict_reason: format!(
            "the request needed {} from the device, which had {} free; the cache held {} free, its largest usable block {}",
            size(segment),
            size(device_free),
            size(reserved - active),
            size(largest),
        ),
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
        causes: causes(step, event, largest, capacity),
        blockers: Vec::new(),
        remedies: Vec::new(),
    }
}

fn causes(step: &Step<'_>, event: Event, largest: u64, capacity: Option<u64>) -> Vec<Cause> {
    let pool = event.pool.unwrap_or(Pools::DEFAULT);
    let homes = step.tiling.homes();
    let sum = |bytes: fn(&crate::replay::Home) -> u64,
               keep: &dyn Fn(&&crate::replay::Home) -> bool| {
        homes.iter().filter(keep).map(bytes).fold(0u64, u64::saturating_add)
    };
    let own = sum(|h| h.free, &|h| h.pool == pool && h.stream == event.stream);
    let other_stream = sum(|h| h.free, &|h| h.pool == pool && h.stream != event.stream);
    let other_pool = sum(|h| h.free, &|h| h.pool != pool);
    let pending = sum(|h| h.pending, &|_| true);
    let pool_note = if pool == Pools::DEFAULT {
        "free in private pools (CUDA graphs, MemPool), out of reach for the default pool"
    } else {
        "free in other pools, out of reach for this private pool"
    };
    let mut causes = vec![
        Cause {
            kind: "fragmentation",
            bytes: own,
            note: format!(
                "free in blocks of the request's own pool and stream, the largest usable one {}",
                size(largest)
            ),
        },
        Cause {
            kind: "other-stream",
            bytes: other_stream,
            note: "free in blocks of other streams, which this stream cannot use".to_owned(),
        },
        Cause { kind: "private-pool", bytes: other_pool, note: pool_note.to_owned() },
        Cause {
            kind: "pending-free",
            bytes: pending,
            note: "freed by the program, waiting for work on another stream".to_owned(),
        },
    ];
    if let Some(capacity) = capacity {
        let ours = step.tiling.totals().reserved.saturating_add(event.addr);
        causes.push(Cause {
            kind: "non-pytorch",
            bytes: capacity.saturating_sub(ours),
            note: "of the device in use outside this allocator: the CUDA context, libraries, other processes".to_owned(),
        });
    }
    causes.retain(|cause| cause.bytes > 0);
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}
