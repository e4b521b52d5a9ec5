//! Tries one more request, with the memory at the snapshot or at another position.

use std::collections::BTreeMap;

use serde::Serialize;

use super::blockers::Blocker;
use super::failed::{FailureFacts, RequestFacts};
use super::oom::{FailureContext, OomReport};
use crate::allocator::ServedBy;
use crate::allocator::verdict::{Cause, Certainty, Verdict};
use crate::base::units::{self, size};
use crate::replay::literal::{candidate_releases, inferred_capacity};
use crate::replay::model::{Hypothesis, RequestResult, try_request};
use crate::snapshot::{Action, Device, Pools, Stacks};
use crate::stacks::frames::{CodeLocation, Culprit, FrameList};
use crate::study::memory::LiveByLine;
use crate::study::{DeviceStudy, MemoryAt, TracePosition};

/// The result of `--request`: whether a request would succeed, and how. Figures are those after everything was tried.
#[derive(Debug, Clone, Serialize)]
pub struct RequestReport {
    /// Requested bytes, before rounding.
    pub asked_bytes: u64,
    /// The memory that would serve the request; null if it would fail.
    pub served_from: Option<Served>,
    /// Bytes of cached memory that would be released to the device to make room.
    pub given_back_bytes: u64,
    /// Assumptions about what the file does not record, one sentence each.
    pub assumed: Vec<String>,
    /// The verdict on the request: `served`, or why it would fail.
    #[serde(flatten)]
    pub outcome: RequestOutcome,
}

/// The outcome of a tried request. Both variants have the keys of a failed request.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum RequestOutcome {
    /// The request would succeed.
    Served(Box<ServedRequest>),
    /// The request would fail.
    Failed(Box<OomReport>),
}

/// A tried request that would succeed.
#[derive(Debug, Clone, Serialize)]
pub struct ServedRequest {
    /// Index in the device's trace at which the request was tried.
    pub event: u64,
    /// Requested bytes, rounded by the allocator.
    pub requested_bytes: u64,
    /// Size in bytes of the segment that the allocator would request from the device if it needed one.
    pub segment_bytes: u64,
    /// Raw handle of the stream.
    pub stream: u64,
    /// The pool: the default one.
    pub pool_id: Option<[u64; 2]>,
    /// Always false.
    pub is_pool_open: bool,
    /// Free device memory in bytes.
    pub device_free_bytes: u64,
    /// Reserved bytes after memory was released for the request.
    pub reserved_bytes: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Bytes of free blocks in the cache.
    pub cached_bytes: u64,
    /// Size in bytes of the largest free block that the request may use.
    pub largest_free_block_bytes: u64,
    /// Always null.
    pub time_us: Option<u64>,
    /// `served`.
    pub verdict: Verdict,
    /// Certainty of the verdict: `possible`, because it rests on assumptions.
    pub confidence: Certainty,
    /// The memory that would serve it, in a phrase.
    pub verdict_reason: String,
    /// Nowhere in the program.
    #[serde(flatten, with = "Culprit")]
    pub location: CodeLocation,
    /// Always null.
    pub operation: Option<String>,
    /// Always null.
    pub user_metadata: Option<String>,
    /// Always empty.
    pub frames: FrameList,
    /// Always 0.
    pub shortfall_bytes: u64,
    /// Always empty.
    pub causes: Vec<Cause>,
    /// Always empty.
    pub blockers: Vec<Blocker>,
    /// Lines whose blocks are pending free, largest first.
    pub pending: Vec<LiveByLine>,
    /// Always empty.
    pub remedies: Vec<()>,
}

impl ServedRequest {
    fn new(device: DeviceStudy<'_, '_>, facts: FailureFacts, reason: String) -> Self {
        let FailureFacts { request, circumstances, totals, pending, .. } = facts;
        let stacks = device.stacks();
        Self {
            event: request.entry as u64,
            requested_bytes: request.bytes,
            segment_bytes: circumstances.needed_from_device().bytes,
            stream: request.stream,
            pool_id: request.pool.map(|pool| device.snapshot().pools.get(pool)),
            is_pool_open: false,
            device_free_bytes: request.device_free,
            reserved_bytes: totals.reserved,
            allocated_bytes: totals.allocated,
            cached_bytes: totals.reserved - totals.active,
            largest_free_block_bytes: circumstances.largest.unwrap_or_default().bytes,
            time_us: None,
            verdict: Verdict::Served,
            confidence: Certainty::Possible,
            verdict_reason: reason,
            location: stacks.code_location(stacks.line_id(request.stack)),
            operation: None,
            user_metadata: None,
            frames: stacks.frame_list(request.stack),
            shortfall_bytes: 0,
            causes: Vec::new(),
            blockers: Vec::new(),
            pending,
            remedies: Vec::new(),
        }
    }
}

/// The memory that would serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Served {
    /// `free-block` or `new-memory`.
    pub kind: &'static str,
    /// Address of the free block; null for new memory.
    pub address: Option<u64>,
    /// Size in bytes of the free block, or of the new device memory.
    pub bytes: u64,
}

/// Requests `bytes` in the default pool of `device`, with its `memory` at `position`.
pub(crate) fn request(
    device: DeviceStudy<'_, '_>,
    (position, memory): (TracePosition, &MemoryAt<'_, '_>),
    bytes: u64,
) -> RequestReport {
    let (recorded, reserved) = (device.device(), memory.figures.reserved_bytes);
    let next = match position {
        TracePosition::Snapshot => recorded.len(),
        TracePosition::Start => 0,
        TracePosition::Entry { event } => usize::try_from(event).map_or(usize::MAX, |event| event + 1),
    };
    let stream = stream_of(recorded, next);
    let mut assumed = vec![format!("the request is made on stream {}, in the default pool", units::stream(stream))];
    let inferred = inferred_capacity(recorded, 0);
    let capacity = match (device.scope().capacity, inferred, device.recorded_capacity()) {
        (Some(capacity), ..) => {
            assumed.push(format!("PyTorch may use the whole capacity of {}", size(capacity)));
            capacity
        }
        (None, Some(inferred), _) => {
            assumed.push(format!("{} is within reach, as a failed request shows", size(inferred)));
            inferred
        }
        (None, None, Some(recorded)) => {
            assumed.push(format!("PyTorch may use the whole device of {}", size(recorded)));
            recorded
        }
        (None, None, None) => {
            assumed.push("the device has no free memory; no snapshot records it, so give --capacity".to_owned());
            reserved
        }
    };
    let minor = device.scope().minor;
    let minor = minor.unwrap_or_else(|| *candidate_releases(&device.snapshot().torch).end());
    let hypothesis = Hypothesis {
        minor,
        settings: device.settings().clone(),
        limit: None,
        capacity: Some(capacity.max(reserved)),
        no_split: Vec::new(),
        assumes_captures: true,
        settings_changes: Vec::new(),
    };
    let limit = hypothesis.limit_from_settings();
    let hypothesis = Hypothesis { limit, ..hypothesis };
    let answer = try_request(recorded, memory.layout(), &hypothesis, (bytes, stream));
    let served_from = served(&answer);
    let request = RequestFacts {
        entry: next,
        bytes: answer.rounded_size,
        stream,
        pool: Some(Pools::DEFAULT),
        device_free: answer.device_free,
        time_us: 0,
        stack: Stacks::EMPTY,
        user_metadata: None,
        is_served: served_from.is_some(),
    };
    let facts = FailureFacts::tried(device, request, &answer.tiling);
    let outcome = if let Some(served) = served_from {
        let reason = describe_served(&served, answer.released_bytes);
        RequestOutcome::Served(Box::new(ServedRequest::new(device, facts, reason)))
    } else {
        let report = OomReport::new(device, facts, FailureContext::default());
        RequestOutcome::Failed(Box::new(report))
    };
    RequestReport { asked_bytes: bytes, served_from, given_back_bytes: answer.released_bytes, assumed, outcome }
}

/// The stream of the last request before entry `next`; without one, the stream with the most memory at the snapshot.
fn stream_of(device: Device<'_>, next: usize) -> u64 {
    let is_request = |action| matches!(action, Action::Alloc | Action::Oom);
    let mut before = device.entries_where(is_request).rev().skip_while(|(row, _)| *row >= next);
    if let Some((_, event)) = before.next() {
        return event.stream;
    }
    let mut streams: BTreeMap<u64, u64> = BTreeMap::new();
    for segment in device.segments() {
        if segment.pool == Pools::DEFAULT {
            let bytes = streams.entry(segment.stream).or_default();
            *bytes = bytes.saturating_add(segment.total_size);
        }
    }
    // `rev`, so that the lowest handle wins a tie.
    streams.into_iter().rev().max_by_key(|(_, bytes)| *bytes).map_or(0, |(stream, _)| stream)
}

fn served(answer: &RequestResult) -> Option<Served> {
    let (address, bytes) = answer.served_from?;
    let is_cached = answer.service == ServedBy::Cached;
    Some(Served {
        kind: if is_cached { "free-block" } else { "new-memory" },
        address: is_cached.then_some(address),
        bytes,
    })
}

fn describe_served(served: &Served, released: u64) -> String {
    let bytes = size(served.bytes);
    match (served.address, released) {
        (Some(address), _) => format!("from the free block of {bytes} at {address:#x}"),
        (None, 0) => format!("from {bytes} of new memory, free on the device"),
        (None, released) => format!(
            "from {bytes} of new memory, after {} of the cache is released to the device, which \
             is slow",
            size(released)
        ),
    }
}
