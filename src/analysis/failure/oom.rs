//! The report on a failed request, and on one that is tried.

use std::ops::Deref;

use itertools::Itertools as _;
use serde::Serialize;

use super::blockers::Blocker;
use super::failed::FailureFacts;
use super::judged::{CauseNote, Outlook, VerdictReason, judge};
use super::remedies::{RecordedReplay, Remedy, TrialResults};
use crate::allocator::verdict::{Certainty, Verdict};
use crate::base::details::promised;
use crate::base::units::escape_name;
use crate::snapshot::{Pools, SourceFiles};
use crate::stacks::frames::{CodeLocation, Culprit, FrameList, FrameReport};
use crate::study::DeviceStudy;
use crate::study::attribution::MemoryBreakdown;
use crate::study::iterations::UnusualInput;
use crate::study::memory::Holder;
use crate::whatif::JobOutcome;
use crate::whatif::forecast::Forecast;

/// A failed request: an `oom` entry of a trace. A [`JudgedRequest`] with replays.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct OomReport {
    /// The request, the memory and the verdict.
    #[serde(flatten)]
    pub request: JudgedRequest,
    /// The input of the failed iteration, if that is why the iteration needs more than those before; only for a failure
    /// that ended a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusual_input: Option<UnusualInput>,
    /// No request follows in the trace, and those that would have are not known: the verdict is about this request alone.
    pub is_rest_unknown: bool,
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

promised! {
    OomReport {
        event, time_us, requested_bytes, segment_bytes, shortfall_bytes, stream, pool_id, device_free_bytes, reserved_bytes,
        allocated_bytes, cached_bytes, largest_free_block_bytes, verdict, verdict_reason, confidence, culprit, called_from,
        backward, operation, frames, frames_left_out, held,
    }
}

impl Deref for OomReport {
    type Target = JudgedRequest;

    fn deref(&self) -> &JudgedRequest {
        &self.request
    }
}

/// Evidence about a failed request, other than the memory at that time.
#[derive(Default)]
pub(super) struct FailureContext<'p> {
    /// Replays under other settings.
    pub(super) trials: TrialResults,
    /// No request follows in the trace.
    pub(super) ends_trace: bool,
    /// The requests that follow, for a failure that ended the trace.
    pub(super) forecast: Option<&'p Forecast<'p>>,
    /// Attribution of the memory, for the last failure of a trace.
    pub(super) held: Option<MemoryBreakdown>,
    /// The model reproduces the recording.
    pub(super) is_reproduced: bool,
    /// A line grows with every step.
    pub(super) grows: bool,
}

impl OomReport {
    pub(super) fn new(device: DeviceStudy<'_, '_>, failed: FailureFacts, context: FailureContext<'_>) -> Self {
        let FailureContext { trials, ends_trace, forecast, held, is_reproduced, grows } = context;
        let outlook = if ends_trace { Outlook::after_failure(device, &failed, forecast) } else { Outlook::default() };
        let judgement = judge(device, &failed, &trials, &outlook, [is_reproduced, grows]);
        Self {
            is_rest_unknown: ends_trace && !trials.remedies.iter().any(is_outcome_known),
            request: JudgedRequest::new(device, failed, &judgement, outlook),
            unusual_input: forecast.and_then(|known| known.unusual_input.clone()),
            as_recorded: trials.as_recorded,
            remedies: trials.remedies,
            held,
        }
    }
}

fn is_outcome_known(remedy: &Remedy) -> bool {
    remedy.avoids_oom && matches!(remedy.then, JobOutcome::GoesOn { .. } | JobOutcome::FailsAgain { .. })
}

/// A failed or tried request, the memory at that time, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedRequest {
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
    pub verdict_reason: VerdictReason,
    /// The program's prospects; only for the last failure of a trace.
    #[serde(skip)]
    pub outlook: Outlook,
    /// The innermost line outside PyTorch in the request's stack.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
    /// The text of `culprit` with its neighbours; only for the last failure of a trace. Absent if the recorder stored no
    /// text and `--source` gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceExcerpt>,
    /// The operation that requested it; null if the stack shows none.
    pub operation: Option<String>,
    /// The program's `user_metadata`; null if not set.
    pub user_metadata: Option<String>,
    /// The whole stack of the request.
    #[serde(flatten)]
    pub frames: FrameList,
    /// Missing bytes: of device memory or of contiguous free memory, whichever is less.
    pub shortfall_bytes: u64,
    /// Where free memory was, largest first.
    pub causes: Vec<Cause>,
    /// Live blocks that keep free memory apart; only for the last 16 failures of a trace.
    pub blockers: Vec<Blocker>,
    /// Lines whose blocks were pending free, largest first, with shares of all pending memory; only for the last 16
    /// failures of a trace.
    pub pending: Vec<Holder>,
}

impl JudgedRequest {
    pub(super) fn new(
        device: DeviceStudy<'_, '_>,
        failed: FailureFacts,
        &(verdict, confidence, reason): &(Verdict, Certainty, VerdictReason),
        outlook: Outlook,
    ) -> Self {
        let (snapshot, stacks) = (device.snapshot(), device.stacks());
        let FailureFacts { request, circumstances, totals, pool_guess, .. } = &failed;
        Self {
            event: failed.entry as u64,
            requested_bytes: request.size,
            segment_bytes: circumstances.needed_from_device().bytes,
            stream: request.stream,
            pool_id: request.pool.map(|pool| snapshot.pools.get(pool)),
            kept_back_bytes: pool_guess.unreleased,
            is_pool_open: pool_guess.is_open,
            device_free_bytes: request.addr,
            reserved_bytes: totals.reserved,
            allocated_bytes: totals.allocated,
            cached_bytes: totals.reserved - totals.active,
            largest_free_block_bytes: circumstances.largest.unwrap_or_default().bytes,
            time_us: (request.time_us != 0).then_some(request.time_us),
            verdict,
            confidence,
            verdict_reason: reason,
            outlook,
            location: stacks.location_of(request.extended_stack),
            source: None,
            operation: stacks.operation(request.extended_stack),
            user_metadata: request
                .user_metadata
                .map(|text| escape_name(snapshot.text(text)))
                .filter(|text| !text.is_empty()),
            frames: stacks.frame_list(request.extended_stack),
            shortfall_bytes: failed.missing_bytes(),
            causes: causes(&failed),
            blockers: failed.blockers,
            pending: failed.pending,
        }
    }
}

/// Memory that could have served a failed request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The kind of memory, as the verdict that names it: `fragmentation`, `other-stream`, `private-pool`,
    /// `pending-free` or `non-pytorch`.
    pub kind: Verdict,
    /// Bytes of this kind when the request failed.
    pub bytes: u64,
    /// One sentence that describes the memory.
    pub note: CauseNote,
}

/// Where memory was that could have served a failed request, largest first.
fn causes(failed: &FailureFacts) -> Vec<Cause> {
    if failed.is_served {
        return Vec::new();
    }
    let circumstances = &failed.circumstances;
    let other_pool = match failed.pool_guess.pool {
        Some(Pools::DEFAULT) => CauseNote::PrivatePools,
        Some(_) => CauseNote::OtherPools,
        None => CauseNote::UnknownPool,
    };
    // If a block was large enough, the verdict says why it did not serve.
    let largest = circumstances.largest.unwrap_or_default().bytes;
    let own = CauseNote::Own(largest, largest >= failed.request.size);
    let causes = [
        (Verdict::Fragmentation, circumstances.own.all.bytes, own),
        (Verdict::OtherStream, circumstances.other_stream.bytes, CauseNote::OtherStream),
        (Verdict::PrivatePool, circumstances.other_pool.bytes, other_pool),
        (Verdict::PendingFree, circumstances.pending.all.bytes, CauseNote::Pending),
        (Verdict::NonPytorch, failed.outside, CauseNote::Outside),
    ];
    let causes = causes.map(|(kind, bytes, note)| Cause { kind, bytes, note });
    causes.into_iter().filter(|cause| cause.bytes > 0).sorted_by_key(|cause| std::cmp::Reverse(cause.bytes)).collect()
}

/// A source line with its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceExcerpt {
    /// File name, as in the stack.
    pub file: String,
    /// Number of the first of `lines`.
    pub first_line: u32,
    /// Texts of consecutive lines, each cut after 160 characters: `line` with the one before and the one after, as far
    /// as they are known.
    pub lines: Vec<String>,
    /// Number of the line that made the request.
    pub line: u32,
}

impl SourceExcerpt {
    /// `None` if the text of the line is unknown.
    pub(in crate::analysis) fn quote(frame: &FrameReport, source: &SourceFiles) -> Option<Self> {
        let failing = source.line(&frame.file, frame.line)?;
        let before = frame.line.checked_sub(1).and_then(|line| source.line(&frame.file, line));
        let first_line = frame.line - u32::from(before.is_some());
        let after = frame.line.checked_add(1).and_then(|line| source.line(&frame.file, line));
        let lines = before.into_iter().chain([failing]).chain(after).collect();
        Some(Self { file: frame.file.clone(), first_line, lines, line: frame.line })
    }
}
