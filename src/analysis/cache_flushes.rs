//! Requests for which the allocator released cached memory to the device.

use serde::Serialize;

use crate::replay::ops::device_frees;
use crate::study::{DeviceStudy, MemoryHistory};

/// Requests that found no room until the allocator had released cached memory, which waits for the GPU each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheFlushes {
    /// Number of these requests.
    pub requests: u64,
    /// Bytes released for them in all.
    pub released_bytes: u64,
}

impl CacheFlushes {
    /// `None` if there was no such request.
    pub(super) fn from_history(device: DeviceStudy<'_, '_>, history: &MemoryHistory) -> Option<Self> {
        let window = device.window();
        let released = device_frees(device.device(), history.outcome.initial_totals.reserved);
        let for_requests = released.filter(|one| one.is_for_request && window.contains(&one.entry_index));
        let (requests, released_bytes) =
            for_requests.fold((0, 0_u64), |(count, sum), one| (count + 1, sum.saturating_add(one.bytes)));
        (requests > 0).then_some(Self { requests, released_bytes })
    }
}
