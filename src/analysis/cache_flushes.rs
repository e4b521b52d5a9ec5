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
        let none = Self { requests: 0, released_bytes: 0 };
        let flushes = for_requests.fold(none, |sum, one| Self {
            requests: sum.requests + 1,
            released_bytes: sum.released_bytes.saturating_add(one.bytes),
        });
        (flushes.requests > 0).then_some(flushes)
    }
}
