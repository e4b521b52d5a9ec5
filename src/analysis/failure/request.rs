//! Tries one more request, with the memory at the snapshot or at another position.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::failed::FailureFacts;
use super::judged::{Outlook, Served, VerdictReason};
use super::oom::{FailureContext, JudgedRequest, OomReport};
use crate::allocator::ServedBy;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::replay::literal::{candidate_releases, inferred_capacity};
use crate::replay::model::{Hypothesis, RequestResult, try_request};
use crate::snapshot::{Action, Device, Pools, TraceEntry};
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
    pub assumed: Vec<Assumption>,
    /// The verdict on the request: `served`, why it would fail, or `unknown` if the size of the device is not known.
    #[serde(flatten, serialize_with = "served_or_failed")]
    pub outcome: RequestOutcome,
}

/// A tried request that would be served, or would fail. Both have the keys of a failed request.
pub type RequestOutcome = Result<Box<JudgedRequest>, Box<OomReport>>;

fn served_or_failed<S: Serializer>(outcome: &RequestOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    match outcome {
        Ok(served) => served.serialize(serializer),
        Err(failed) => failed.serialize(serializer),
    }
}

/// An assumption about what the file does not record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assumption {
    /// The request is made on this stream, in the default pool.
    Stream(u64),
    /// All of the given capacity is within reach, in bytes.
    GivenCapacity(u64),
    /// The bytes within reach are those that a failed request shows.
    RefusedCapacity(u64),
    /// All of the recorded device is within reach, in bytes.
    RecordedCapacity(u64),
    /// The device has no free memory.
    FullDevice,
}

/// Requests `bytes` in the default pool of `device`, with its `memory` at `position`.
pub(crate) fn request(
    device: DeviceStudy<'_, '_>,
    (position, memory): (TracePosition, &MemoryAt),
    bytes: u64,
) -> RequestReport {
    let (recorded, reserved) = (device.device(), memory.figures.reserved_bytes);
    let next = match position {
        TracePosition::Snapshot => recorded.len(),
        TracePosition::Start => 0,
        TracePosition::Entry { event } => usize::try_from(event).map_or(usize::MAX, |event| event + 1),
    };
    let stream = stream_of(recorded, next);
    let (capacity, assumption) =
        match (device.scope().capacity, inferred_capacity(recorded, 0), device.recorded_capacity()) {
            (Some(capacity), ..) => (capacity, Assumption::GivenCapacity(capacity)),
            (None, Some(inferred), _) => (inferred, Assumption::RefusedCapacity(inferred)),
            (None, None, Some(recorded)) => (recorded, Assumption::RecordedCapacity(recorded)),
            (None, None, None) => (reserved, Assumption::FullDevice),
        };
    let minor = device.scope().minor.unwrap_or_else(|| *candidate_releases(&device.snapshot().torch).end());
    let mut hypothesis = Hypothesis {
        minor,
        settings: device.settings().clone(),
        limit: None,
        capacity: Some(capacity.max(reserved)),
        no_split: Vec::new(),
        assumes_captures: true,
        settings_changes: Vec::new(),
    };
    hypothesis.limit = hypothesis.limit_from_settings();
    let answer = try_request(recorded, memory.layout.as_ref(), &hypothesis, (bytes, stream));
    let served_from = served(&answer);
    let (size, addr, pool) = (answer.rounded_size, answer.device_free, Some(Pools::DEFAULT));
    let request = TraceEntry { action: Action::Oom, addr, size, stream, pool, ..TraceEntry::default() };
    let facts = FailureFacts::tried(device, (next, request), served_from.is_some(), &answer.tiling);
    let outcome = if let Some(served) = served_from {
        let reason = VerdictReason::new(device, &facts, Verdict::Served);
        let reason = VerdictReason { served: Some((served, answer.released_bytes)), ..reason };
        let judgement = (Verdict::Served, Certainty::Possible, reason); // it rests on assumptions
        Ok(Box::new(JudgedRequest::new(device, facts, &judgement, Outlook::default())))
    } else {
        let mut failed = OomReport::new(device, facts, FailureContext::default());
        if matches!(assumption, Assumption::FullDevice) {
            failed.request.verdict = Verdict::Unknown;
        }
        Err(Box::new(failed))
    };
    let assumed = vec![Assumption::Stream(stream), assumption];
    RequestReport { asked_bytes: bytes, served_from, given_back_bytes: answer.released_bytes, assumed, outcome }
}

/// The stream of the last request before entry `next`; without one, the stream with the most memory at the snapshot.
fn stream_of(device: Device<'_>, next: usize) -> u64 {
    let requests = device.entries_where(|action| matches!(action, Action::Alloc | Action::Oom));
    if let Some((_, event)) = requests.rev().find(|(row, _)| *row < next) {
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
