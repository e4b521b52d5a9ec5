//! The report on a failed request.

use serde::Serialize;

use super::blockers::Blocker;
use super::failed::FailureFacts;
use super::judged::Judgement;
use super::outlook::{Filling, Growth, NextStep, Outlook};
use super::remedies::{RecordedReplay, Remedy, TrialResults};
use crate::allocator::verdict::{Cause, Certainty, Verdict, largest_first};
use crate::base::units::{escape_name, size};
use crate::replay::ops::Continuation;
use crate::snapshot::Pools;
use crate::stacks::frames::{CodeLocation, Culprit, FrameList};
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;
use crate::study::memory::LiveByLine;

/// A failed request: an `oom` entry of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OomReport {
    /// Index of the entry in the device's trace.
    pub event: u64,
    /// Requested bytes, rounded by the allocator, as recorded.
    pub requested_bytes: u64,
    /// Size of the segment that the allocator requested from the device, in bytes.
    pub segment_bytes: u64,
    /// Raw handle of the stream.
    pub stream: u64,
    /// The pool; null if not recorded (before PyTorch 2.12) and not inferred from the memory of its stream.
    pub pool_id: Option<[u64; 2]>,
    /// Free bytes that the default pool would have released for this request but did not. The request was for a
    /// private pool, or the memory was in one that no longer exists. Absent if the pool is recorded, or there were
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_back_bytes: Option<u64>,
    /// Whether the request may have been for a private pool: no pool is recorded, and a private pool has memory of its
    /// stream, or memory was not released. No remedy is claimed for a private pool.
    pub is_pool_open: bool,
    /// Free device memory in bytes, as recorded.
    pub device_free_bytes: u64,
    /// Reserved bytes at that time.
    pub reserved_bytes: u64,
    /// Allocated bytes at that time.
    pub allocated_bytes: u64,
    /// Bytes of free blocks in the cache at that time.
    pub cached_bytes: u64,
    /// Size in bytes of the largest free block that this request may use.
    pub largest_free_block_bytes: u64,
    /// Microseconds since the epoch; null before PyTorch 2.2.
    pub time_us: Option<u64>,
    /// Why the request failed: the one kind of memory that would have served it.
    pub verdict: Verdict,
    /// Certainty of the verdict.
    pub confidence: Certainty,
    /// The reason in a sentence with figures.
    pub verdict_reason: String,
    /// Growth from step to step up to this request; only for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<Growth>,
    /// Uninterrupted requests by the failing line; only for a failure that ended a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filling: Option<Filling>,
    /// Predicted memory needs of the next step; only for a failure that ended a trace and whose request was also made
    /// one step earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<NextStep>,
    /// The innermost line outside PyTorch in the request's stack.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
    /// The operation that requested it; null if the stack shows none.
    pub operation: Option<String>,
    /// The program's `user_metadata`; null if not set.
    pub user_metadata: Option<String>,
    /// The whole stack of the request.
    pub frames: FrameList,
    /// Missing bytes: of device memory or of contiguous free memory, whichever is less.
    pub shortfall_bytes: u64,
    /// Where free memory was, largest first.
    pub causes: Vec<Cause>,
    /// Live blocks that keep free memory apart; only for the last 16 failures of a trace.
    pub blockers: Vec<Blocker>,
    /// Lines whose blocks were pending free, largest first, with shares of all pending memory; only for the last 16
    /// failures of a trace.
    pub pending: Vec<LiveByLine>,
    /// The replay under the recorded settings; absent if the model does not reproduce the trace or no setting was
    /// tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_recorded: Option<RecordedReplay>,
    /// Replays under other settings, those that avoid the failure first; only for the last 16 failures of a trace that
    /// the model reproduces.
    pub remedies: Vec<Remedy>,
    /// Attribution of the memory; only for the last failure of a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<MemoryBreakdown>,
}

/// Evidence about a failed request, other than the memory at that time.
#[derive(Default)]
pub(super) struct FailureContext<'p> {
    /// Replays under other settings.
    pub(super) trials: TrialResults,
    /// No request follows in the trace.
    pub(super) ends_trace: bool,
    /// The predicted continuation of the program, if known.
    pub(super) continuation: Option<&'p Continuation<'p>>,
    /// Attribution of the memory, for the last failure of a trace.
    pub(super) held: Option<MemoryBreakdown>,
    /// The model reproduces the recording.
    pub(super) is_reproduced: bool,
    /// A line grows with every step.
    pub(super) grows: bool,
}

impl OomReport {
    pub(super) fn new(device: DeviceStudy<'_, '_>, failed: FailureFacts, context: FailureContext<'_>) -> Self {
        let FailureContext { trials, ends_trace, continuation, held, is_reproduced, grows } = context;
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let FailureFacts { request, circumstances, totals, pool_guess, .. } = &failed;
        let largest = circumstances.largest.unwrap_or_default().bytes;
        let segment = circumstances.needed_from_device().bytes;
        let missing = segment.saturating_sub(request.device_free).min(request.bytes.saturating_sub(largest));
        let outlook = if ends_trace {
            Outlook::after_failure(device, &failed, continuation, missing)
        } else {
            Outlook::default()
        };
        let is_capacity_known = device.capacity().is_some();
        let judgement = Judgement::new(&failed, &trials, outlook, [is_reproduced, is_capacity_known, grows]);
        let location = stacks.code_location(stacks.line_id(request.stack));
        Self {
            event: request.entry as u64,
            requested_bytes: request.bytes,
            segment_bytes: segment,
            stream: request.stream,
            pool_id: request.pool.map(|pool| snapshot.pools.get(pool)),
            kept_back_bytes: pool_guess.unreleased,
            is_pool_open: pool_guess.is_open,
            device_free_bytes: request.device_free,
            reserved_bytes: totals.reserved,
            allocated_bytes: totals.allocated,
            cached_bytes: totals.reserved - totals.active,
            largest_free_block_bytes: largest,
            time_us: (request.time_us != 0).then_some(request.time_us),
            verdict: judgement.verdict,
            confidence: judgement.confidence,
            verdict_reason: judgement.reason(&failed, device.settings()),
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
            shortfall_bytes: missing,
            causes: causes(&failed),
            as_recorded: trials.as_recorded,
            remedies: trials.remedies,
            held,
            blockers: failed.blockers,
            pending: failed.pending,
        }
    }
}

/// Where memory was that could have served the request, largest first.
fn causes(failed: &FailureFacts) -> Vec<Cause> {
    let c = &failed.circumstances;
    let pool_note = match failed.pool_guess.pool {
        Some(Pools::DEFAULT) => "free in private pools (CUDA graphs, MemPool), which the default pool cannot use",
        Some(_) => "free in other pools, which this private pool cannot use",
        None => "free in pools; which private pool the request was for is not recorded",
    };
    let cause = |kind, bytes, note: &str| Cause { kind, bytes, note: note.to_owned() };
    // If a block was large enough, the verdict says why it did not serve.
    let largest = c.largest.unwrap_or_default().bytes;
    let which = if largest >= failed.request.bytes { "the largest" } else { "the largest usable block" };
    let own = format!("free in this pool and stream, {which} {}", size(largest));
    largest_first(vec![
        cause(Verdict::Fragmentation, c.own.all.bytes, &own),
        cause(
            Verdict::OtherStream,
            c.other_stream.bytes,
            "free in blocks of other streams, which this stream cannot use",
        ),
        cause(Verdict::PrivatePool, c.other_pool.bytes, pool_note),
        cause(Verdict::PendingFree, c.pending.all.bytes, "freed by the program, waiting for work on another stream"),
        cause(
            Verdict::NonPytorch,
            failed.outside,
            "in use outside this allocator: the CUDA context, libraries, other processes",
        ),
    ])
}
