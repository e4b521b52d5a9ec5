//! The report of a failed request.

use serde::Serialize;

use super::blockers::Blocker;
use super::failed::Failed;
use super::judged::Judged;
use super::outlook::{Filling, Growth, NextStep, Outlook};
use super::remedies::{Remedy, Tried, Undisturbed};
use crate::allocator::verdict::{Cause, Certainty, Verdict, largest_first};
use crate::base::units::{escape_name, size};
use crate::replay::ops::Continuation;
use crate::snapshot::Pools;
use crate::stacks::frames::{CodeLocation, Culprit, FrameList};
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;
use crate::study::memory::LiveByLine;

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
    /// How sure that is.
    pub confidence: Certainty,
    /// One sentence with the numbers.
    pub verdict_reason: String,
    /// What grew from step to step up to this request; for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// Requests of its line, one after the other up to this one; for a failure that ended a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filling: Option<Filling>,
    /// What one more step would have asked for; for a failure that ended a trace, where the request was made
    /// a step before too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<NextStep>,
    /// The innermost line of the request's stack that is not PyTorch's.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
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
    pub pending: Vec<LiveByLine>,
    /// The replay under the recorded settings; `None` where the model does not reproduce the trace.
    #[serde(rename = "as_recorded", skip_serializing_if = "Option::is_none")]
    pub undisturbed: Option<Undisturbed>,
    /// Settings that were replayed instead, those that avoid the failure first; for the last failures of
    /// a trace that the model reproduces.
    pub remedies: Vec<Remedy>,
    /// Where the memory was, for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<MemoryBreakdown>,
}

/// What was found out of a failed request besides.
#[derive(Default)]
pub(super) struct Found<'p> {
    /// What other settings come to.
    pub(super) tried: Tried,
    /// Whether no request follows in the trace: what came after it is not recorded.
    pub(super) ends_trace: bool,
    /// How the program goes on after that, where that is known.
    pub(super) goes_on: Option<&'p Continuation<'p>>,
    /// Where the memory was, at the last failure of a trace.
    pub(super) held: Option<MemoryBreakdown>,
    /// Whether the model reproduces the recording.
    pub(super) is_reproduced: bool,
    /// Whether some line held more after every step.
    pub(super) grows: bool,
}

impl OomReport {
    /// Of a request that `failed`.
    pub(super) fn of(device: DeviceStudy<'_, '_>, failed: Failed, found: Found<'_>) -> Self {
        let Found { tried, ends_trace, goes_on, held, is_reproduced, grows } = found;
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let Failed { request, circumstances, totals, told, .. } = &failed;
        let largest = circumstances.largest.unwrap_or_default().bytes;
        let segment = circumstances.needed_from_device().bytes;
        let lacking =
            segment.saturating_sub(request.device_free).min(request.bytes.saturating_sub(largest));
        let outlook = if ends_trace {
            Outlook::of(device, &failed, goes_on, lacking)
        } else {
            Outlook::default()
        };
        let is_device_known = device.capacity().is_some();
        let (verdict, verdict_reason, confidence) = if let Some(how) = &request.served {
            (Verdict::Served, how.clone(), Certainty::Possible)
        } else {
            let judged =
                Judged::of(&failed, &tried, outlook, [is_reproduced, is_device_known, grows]);
            (judged.verdict, judged.reason(&failed, device.settings()), judged.confidence)
        };
        let is_served = request.served.is_some();
        let location = stacks.code_location(stacks.line_id(request.stack));
        Self {
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
            confidence,
            verdict_reason,
            growth: outlook.growth,
            next_step: outlook.next_step,
            filling: outlook.filling,
            location,
            operation: stacks.operation(request.stack),
            user_metadata: request
                .user_metadata
                .map(|text| escape_name(snapshot.text(text)))
                .filter(|text| !text.is_empty()),
            frames: stacks.frame_list(request.stack),
            shortfall_bytes: if is_served { 0 } else { lacking },
            causes: if is_served { Vec::new() } else { causes(&failed) },
            undisturbed: tried.undisturbed,
            remedies: tried.remedies,
            held,
            blockers: failed.blockers,
            pending: failed.pending,
        }
    }
}

/// Where memory was that could have served the request, largest first.
fn causes(failed: &Failed) -> Vec<Cause> {
    let c = &failed.circumstances;
    let pool_note = match failed.told.pool {
        Some(Pools::DEFAULT) => {
            "free in private pools (CUDA graphs, MemPool), which the default pool cannot use"
        }
        Some(_) => "free in other pools, which this private pool cannot use",
        None => "free in pools; which private pool the request was for is not recorded",
    };
    let cause = |kind, bytes, note: &str| Cause { kind, bytes, note: note.to_owned() };
    // Why one that is large enough did not serve is the verdict.
    let largest = c.largest.unwrap_or_default().bytes;
    let which =
        if largest >= failed.request.bytes { "the largest" } else { "the largest usable block" };
    let own = format!("free in this pool and stream, {which} {}", size(largest));
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
            failed.outside,
            "in use outside this allocator: the CUDA context, libraries, other processes",
        ),
    ])
}
