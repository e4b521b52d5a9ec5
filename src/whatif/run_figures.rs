//! Peaks and numbers of device calls of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::allocator::AllocatorStatistics;
use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// Peaks and numbers of device calls of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RunFigures {
    /// Peak of reserved bytes of the recorded requests.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Number of device calls that allocate or map memory.
    pub device_allocs: u64,
    /// Number of device calls that free or unmap memory.
    pub device_frees: u64,
    /// Number of requests that are retried after the allocator has released its cached blocks.
    pub retries: u64,
}

impl RunFigures {
    pub(super) fn new(statistics: &AllocatorStatistics) -> Self {
        Self {
            peak_reserved_bytes: statistics.reserved_bytes.all.peak,
            peak_allocated_bytes: statistics.allocated_bytes.all.peak,
            device_allocs: statistics.num_device_alloc,
            device_frees: statistics.num_device_free,
            retries: statistics.num_alloc_retries,
        }
    }

    /// The figures of the model if it reproduces the recording, else those that the trace alone shows.
    pub(super) fn recorded(device: DeviceStudy<'_, '_>) -> Self {
        let verification = &device.inferred().verification;
        if verification.is_exact() {
            return Self::new(verification.allocator.statistics());
        }
        let (trace, peak) = (device.device(), device.peak());
        let count = |is_counted: fn(Action) -> bool| trace.entries_where(is_counted).count() as u64;
        let for_requests = device_frees(trace, device.reserved_before());
        let made_room = for_requests.filter(|given| given.is_for_request);
        let served = made_room.filter(|given| trace.entry(given.entry_index).action != Action::Oom);
        Self {
            peak_reserved_bytes: peak.reserved_bytes,
            // In a damaged snapshot the blocks of a segment may exceed its size.
            peak_allocated_bytes: peak.allocated_bytes.min(peak.reserved_bytes),
            device_allocs: count(Action::is_growth),
            device_frees: count(Action::is_shrink),
            // Requests for which cached blocks were released, or that failed.
            retries: (served.count() + trace.failed_requests().count()) as u64,
        }
    }

    /// The statistics under the keys of `torch.cuda.memory_stats()`, after `failed` requests.
    pub(super) fn statistics(&self, failed: usize) -> BTreeMap<String, i64> {
        let figures = [
            ("allocated_bytes.all.peak", self.peak_allocated_bytes),
            ("num_alloc_retries", self.retries),
            ("num_device_alloc", self.device_allocs),
            ("num_device_free", self.device_frees),
            ("num_ooms", failed as u64),
            ("reserved_bytes.all.peak", self.peak_reserved_bytes),
        ];
        let signed = |(key, value): (&str, u64)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
        figures.into_iter().map(signed).collect()
    }
}
