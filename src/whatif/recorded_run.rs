//! The figures of the recorded run.

use std::collections::BTreeMap;

use crate::replay::ops::device_frees;
use crate::snapshot::Action;
use crate::study::DeviceStudy;

/// Peaks in bytes and numbers of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordedRun {
    pub(super) peak_reserved: u64,
    pub(super) peak_allocated: u64,
    pub(super) device_allocs: u64,
    pub(super) device_frees: u64,
    /// Requests for which cached blocks were released, or that failed.
    pub(super) retries: u64,
    pub(super) failed: u64,
}

impl RecordedRun {
    /// The figures of the model if it reproduces the recording, else those that the trace alone shows.
    pub(super) fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        let verification = &device.inferred().verification;
        if !verification.is_exact() {
            return Self::from_trace(device);
        }
        let statistics = verification.allocator.statistics();
        Self {
            peak_reserved: statistics.reserved_bytes.all.peak,
            peak_allocated: statistics.allocated_bytes.all.peak,
            device_allocs: statistics.num_device_alloc,
            device_frees: statistics.num_device_free,
            retries: statistics.num_alloc_retries,
            failed: device.device().failed_requests().count() as u64,
        }
    }

    fn from_trace(device: DeviceStudy<'_, '_>) -> Self {
        let (trace, peak) = (device.device(), device.peak());
        let count = |is_counted: fn(Action) -> bool| trace.entries_where(is_counted).count() as u64;
        let for_requests = device_frees(trace, device.reserved_before());
        let made_room = for_requests.filter(|given| given.is_for_request);
        let served = made_room.filter(|given| trace.entry(given.entry_index).action != Action::Oom);
        let failed = trace.failed_requests().count() as u64;
        Self {
            peak_reserved: peak.reserved_bytes,
            // In a damaged snapshot the blocks of a segment may exceed its size.
            peak_allocated: peak.allocated_bytes.min(peak.reserved_bytes),
            device_allocs: count(Action::is_growth),
            device_frees: count(Action::is_shrink),
            retries: served.count() as u64 + failed,
            failed,
        }
    }

    /// The statistics under the keys of `torch.cuda.memory_stats()`.
    pub(super) fn statistics(&self) -> BTreeMap<String, i64> {
        let figures = [
            ("allocated_bytes.all.peak", self.peak_allocated),
            ("num_alloc_retries", self.retries),
            ("num_device_alloc", self.device_allocs),
            ("num_device_free", self.device_frees),
            ("num_ooms", self.failed),
            ("reserved_bytes.all.peak", self.peak_reserved),
        ];
        let signed = |(key, value): (&str, u64)| (key.to_owned(), i64::try_from(value).unwrap_or(i64::MAX));
        figures.into_iter().map(signed).collect()
    }
}
