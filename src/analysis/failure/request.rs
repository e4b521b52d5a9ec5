//! One more request, asked of the memory as the snapshot has it, or as it was at another moment.

use std::collections::BTreeMap;

use serde::Serialize;

use super::failed::{Failed, RequestFacts};
use super::oom::{Found, OomReport};
use crate::allocator::ServedBy;
use crate::base::units::{self, size};
use crate::replay::literal::{candidate_releases, inferred_capacity};
use crate::replay::model::{Hypothesis, RequestResult, try_request};
use crate::snapshot::{Action, Device, Pools, Stacks};
use crate::study::{DeviceStudy, MemoryAt, TracePosition};

/// Whether a request would succeed, and how.
#[derive(Debug, Clone, Serialize)]
pub struct RequestReport {
    /// As asked, before rounding.
    pub asked_bytes: u64,
    /// The memory that would serve it; `None` where nothing would.
    pub served_from: Option<Served>,
    /// Cached memory that was given back to the device to make room.
    pub given_back_bytes: u64,
    /// What the file does not record and was assumed, one sentence each.
    pub assumed: Vec<String>,
    /// As of a failed request, after everything was tried; the verdict is `served` if it would not fail.
    #[serde(flatten)]
    pub outcome: OomReport,
}

/// Where a request would be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Served {
    /// `free-block`, or `new-memory`.
    pub kind: &'static str,
    /// Where the free block begins; `None` for new memory.
    pub address: Option<u64>,
    /// The free block, or the memory taken from the device for it.
    pub bytes: u64,
}

/// Asks for `asked` bytes in the default pool of `device` at `moment`, when its memory was `memory`.
pub(crate) fn request(
    device: DeviceStudy<'_, '_>,
    (moment, memory): (TracePosition, &MemoryAt<'_, '_>),
    asked: u64,
) -> RequestReport {
    let (recorded, reserved) = (device.device(), memory.figures.reserved_bytes);
    let next = match moment {
        TracePosition::Snapshot => recorded.len(),
        TracePosition::Start => 0,
        TracePosition::Entry { event } => {
            usize::try_from(event).map_or(usize::MAX, |event| event + 1)
        }
    };
    let stream = stream_of(recorded, next);
    let mut assumed = vec![format!(
        "the request is made on stream {}, in the default pool",
        units::stream(stream)
    )];
    let shown = inferred_capacity(recorded, 0);
    let capacity = match (device.scope().capacity, shown) {
        (Some(capacity), _) => {
            assumed.push(format!("PyTorch may use the whole capacity of {}", size(capacity)));
            capacity.max(reserved)
        }
        (None, Some(shown)) => {
            assumed.push(format!("{} is within reach, as a failed request shows", size(shown)));
            shown.max(reserved)
        }
        (None, None) if device.recorded_capacity().is_some() => {
            let recorded = device.recorded_capacity().unwrap_or_default();
            assumed.push(format!("PyTorch may use the whole device of {}", size(recorded)));
            recorded.max(reserved)
        }
        (None, None) => {
            assumed.push(
                "the device has no free memory; no snapshot records it, so give --capacity"
                    .to_owned(),
            );
            reserved
        }
    };
    let minor = device.scope().minor;
    let minor = minor.unwrap_or_else(|| *candidate_releases(&device.snapshot().torch).end());
    let hypothesis = Hypothesis {
        minor,
        settings: device.settings().clone(),
        limit: None,
        capacity: Some(capacity),
        no_split: Vec::new(),
        assumes_captures: true,
        settings_changes: Vec::new(),
    };
    let limit = hypothesis.limit_from_settings();
    let hypothesis = Hypothesis { limit, ..hypothesis };
    let answer = try_request(recorded, memory.layout(), &hypothesis, (asked, stream));
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
        served: served_from.map(|served| in_words(&served, answer.released_bytes)),
    };
    let failed = Failed::asked(device, request, &answer.tiling);
    RequestReport {
        asked_bytes: asked,
        served_from,
        given_back_bytes: answer.released_bytes,
        assumed,
        outcome: OomReport::of(device, failed, Found::default()),
    }
}

/// The stream of the last recorded request before entry `next`; without one that with most memory at the snapshot.
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
    // The lowest handle of equals.
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

fn in_words(served: &Served, given_back: u64) -> String {
    let bytes = size(served.bytes);
    match (served.address, given_back) {
        (Some(address), _) => format!("from the free block of {bytes} at {address:#x}"),
        (None, 0) => format!("from {bytes} of new memory, free on the device"),
        (None, back) => format!(
            "from {bytes} of new memory, after {} of the cache is given back to the device, which \
             is slow",
            size(back)
        ),
    }
}
